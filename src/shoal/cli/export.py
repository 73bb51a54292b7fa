"""The command export."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.options import gc_paused_for_imports
from shoal.core.errors import SpecError

if TYPE_CHECKING:
    from shoal.runs.result import Result

FORMATS = (".pt", ".safetensors", ".onnx")


def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a finished run.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="File to write: .pt (a state_dict), .safetensors or .onnx."
        ),
    ],
    client: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model of this client, by name or number; or all."),
    ] = None,
) -> None:
    """Export a run's model, or each client's model, to a file that other programs read."""
    if out.suffix not in FORMATS:
        raise SpecError(f"--out {out} must end in one of {', '.join(FORMATS)}")
    with gc_paused_for_imports():
        from shoal.runs.load import load_run
        from shoal.terminal import stdout

    result = load_run(directory)
    if client is None:
        _write(result, None, out)
        stdout().print(f"Model: {out}", soft_wrap=True)
        return
    chosen = [str(row.get("name", row["client"])) for row in result.clients] if client == "all" else [client]
    for name in chosen:
        path = out.with_stem(f"{out.stem}-{name}") if client == "all" else out
        named = "name" in result.clients[0]
        if not named and not name.isdigit():
            raise SpecError(f"--client {name!r} must be a number: the clients of this run have no names")
        _write(result, name if named else int(name), path)
        stdout().print(f"Model: {path}", soft_wrap=True)


def _write(result: Result, client: int | str | None, path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    module = result.model(client)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in module.state_dict().items()}, path)
        return
    if path.suffix == ".pt":
        torch.save(module.state_dict(), path)
        return
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise SpecError("ONNX needs packages that are not installed; run pip install 'shoal[onnx]'") from None
    sample = result.dataset.x_test[:1]
    shapes = ({0: torch.export.Dim("batch")},)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages no model here needs
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # torch's, about itself
        torch.onnx.export(
            module, (sample,), path, dynamic_shapes=shapes, dynamo=True, verbose=False, external_data=False
        )
