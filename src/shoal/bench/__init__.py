"""Benchmarks of Shoal against a plain PyTorch loop, and against other frameworks if installed."""
