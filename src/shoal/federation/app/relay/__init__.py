"""The Flower app: a server that runs Shoal's loop, and clients that relay packets."""
