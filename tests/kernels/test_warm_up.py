import sys

from shoal.kernels import warm_up


def test_every_kernel_is_there_after_warming_up():
    warm_up()
    for name in ("philox", "dense", "fold", "logistic", "steps", "swarm"):
        assert f"shoal.kernels.{name}" in sys.modules
