"""Trees as safetensors files, with their structure as JSON in the header."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from shoal.core.errors import PacketError, SpecError
from shoal.core.serialization import flatten, unflatten
from shoal.core.types import Tree


def tree_bytes(tree: Tree) -> bytes:
    """The content of a file with this tree."""
    description, found = flatten(tree)
    values = {str(i): value.detach().cpu().contiguous().clone() for i, value in enumerate(found)}
    # safetensors refuses a file without tensors
    values = values or {"empty": torch.zeros(0)}
    return save(values, metadata={"tree": json.dumps(description)})


def read_tree(path: Path) -> Tree:
    """The tree in a file."""
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})["tree"])
            names = sorted((name for name in file.keys() if name != "empty"), key=int)  # noqa: SIM118
            return unflatten(description, [file.get_tensor(name) for name in names])
    except (SafetensorError, PacketError, OSError, ValueError, KeyError, RecursionError) as error:
        raise SpecError(f"{path} does not hold a part of a checkpoint: {error}") from None
