"""JSON for files and for stdout."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON for files: numbers that are not finite become null, client ids become strings."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, default=_plain)
    except ValueError:  # a number that is not finite; searching every line for those first would be slower
        return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
