"""A real federation: sites that keep their data, a server that has none, and Flower between them."""
