from itertools import chain
from pathlib import Path

from shoal import kernels


def test_every_kernel_is_on_disk_after_warming_up():
    kernels.warm_up()
    folder = Path(kernels.__file__).parent
    compiled = {path.stem for path in folder.glob("*.py") if "\n@kernel(" in path.read_text()}
    assert sorted(compiled) == sorted(chain(*kernels.MODULES))
    kept = {path.name.partition(".")[0] for path in (folder / "__pycache__").glob("*.nbi")}
    assert compiled <= kept
