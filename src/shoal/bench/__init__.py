"""How fast Shoal is beside the plain PyTorch loop, and beside other frameworks where they are installed."""
