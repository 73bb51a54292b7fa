"""Checks against the memory of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from shoal.core.errors import SpecError, StageError
from shoal.spec import Spec

CLIENT, WORKER = 16, 2**26  # minimum bytes for each


def memory() -> int:
    """The physical memory of this machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(spec: Spec) -> None:
    """Refuse a spec that asks for more clients or workers than fit into memory."""
    for name, count, each in (
        ("partition.clients", getattr(spec.partition, "clients", 0), CLIENT),
        ("engine.workers", spec.engine.workers, WORKER),
    ):
        if count * each > memory():
            raise SpecError(
                f"{name} = {count:,} would take more than {count * each / 1e9:,.0f} GB of memory, and this "
                f"machine has {memory() / 1e9:,.0f} GB; choose fewer"
            )


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Turn a lack of memory into an error that the user can fix."""
    try:
        yield
    except StageError as error:
        cause = error.__cause__
        if isinstance(cause, MemoryError) or "can't allocate memory" in str(cause):
            raise SpecError(f"{what} needs more memory than there is; choose a smaller one") from None
        raise
