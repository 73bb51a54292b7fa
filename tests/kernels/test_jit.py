import numba
import numpy as np

from shoal.kernels import jit, quantile


def test_functions_of_others_are_compiled_as_ever():
    """What kernels and they have in common, as `np.empty`, is not machine code by itself."""

    @numba.njit
    def spread(size):
        found = np.empty(size, np.int64)
        for i in range(size):
            found[i] = max(i, 2)
        return found

    @numba.njit
    def spread_twice(size):
        return spread(size) + spread(size)

    assert quantile.quantile(np.array([3.0, 1.0]), np.ones(2), 0.5) == 2
    assert spread_twice(4).tolist() == [4, 4, 4, 6]
    assert type(spread.overloads[numba.int64,].library).__name__ == "JITCodeLibrary"


def test_code_of_other_sources_is_forgotten(tmp_path, monkeypatch):
    """numba would keep a kernel whose own file is as before, though what it calls has changed."""
    source, kept = tmp_path / "tiles.py", tmp_path / "__pycache__" / "kernel.nbi"
    source.write_text("one")
    kept.parent.mkdir()
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    for text, stays in (("one", False), ("one", True), ("two", False)):
        kept.write_text("code")
        source.write_text(text)
        jit.forget_stale_code.__wrapped__()
        assert kept.exists() == stays
