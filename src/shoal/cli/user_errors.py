"""Errors in user-written functions are reported with the user's line, not with Shoal's."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from shoal.core.errors import StageError

NOT_THEIRS = (
    Path(__file__).parents[1],
    *map(Path, map(sysconfig.get_path, ("stdlib", "purelib", "scripts"))),
)


def users_error(error: StageError) -> str | None:
    """One line on an error in a user's own function, data set or model; None if the error is Shoal's."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    what = f"{type(cause).__name__}: {' '.join(str(cause).split())[:500]}"
    stage = str(error).split(" failed in round")[0]
    for frame in reversed(traceback.extract_tb(cause.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and not any(path.is_relative_to(folder) for folder in NOT_THEIRS):
            return f"{stage} failed in {frame.filename}, line {frame.lineno}, in {frame.name}: {what}"
    return f"{stage} failed: {what}" if stage.startswith("task.") else None
