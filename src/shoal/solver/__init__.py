"""Local solvers: how a client trains."""
