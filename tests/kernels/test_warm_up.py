import sys
from pathlib import Path

from shoal import kernels


def test_every_kernel_is_there_after_warming_up():
    kernels.warm_up()
    folder = Path(kernels.__file__).parent
    compiled = {path.stem for path in folder.glob("*.py") if "\n@kernel(" in path.read_text()}
    assert compiled == set(kernels.MODULES)
    assert all(f"shoal.kernels.{name}" in sys.modules for name in compiled)
