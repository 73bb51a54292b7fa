"""What `import shoal` gives, though it loads nothing before it is asked for."""

import subprocess
import sys

import pytest

import shoal
from shoal.runs.runner import run


def test_every_name_is_there():
    assert all(hasattr(shoal, name) for name in shoal.__all__)
    assert set(shoal.__all__) <= set(dir(shoal))
    assert shoal.run is run


def test_an_unknown_name_is_an_error():
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        shoal.runn  # noqa: B018
    with pytest.raises(ImportError, match="runn"):
        from shoal import runn  # noqa: F401


def test_packages_need_no_import_of_their_own():
    code = "import shoal; print(shoal.methods.fedqp.project.__name__, shoal.core.errors.SpecError.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "project SpecError\n"
