from shoal.kernels import jit


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
