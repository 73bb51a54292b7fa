"""Real federations: sites that keep their data, a server without data, and Flower in between."""
