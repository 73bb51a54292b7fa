"""One thread in each test process, as in a run: torch's threads spin while they wait, and then xdist's
processes stand in each other's way (the laws of bad replies took seven times as long)."""

import os

for pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")  # read when torch and NumPy are first imported
