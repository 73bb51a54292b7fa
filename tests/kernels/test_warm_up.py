import sys

from shoal.kernels import warm_up


def test_every_kernel_is_there_after_warming_up():
    warm_up()
    for name in (
        *("philox", "cholesky", "critical", "dense", "fold", "logistic", "products", "steps", "swarm"),
        "trimming",
    ):
        assert f"shoal.kernels.{name}" in sys.modules
