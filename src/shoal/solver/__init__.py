"""How a client trains."""
