"""The cohort size: a number (`count`) or a share (`fraction`) of the clients, by default a tenth."""

from __future__ import annotations

from shoal.core.errors import SpecError


def check_size(count: int | None, fraction: float | None) -> None:
    """Raise `SpecError` if both are given, or one is out of range."""
    if count is not None and fraction is not None:
        raise SpecError(f"give count or fraction, not both, got count = {count}, fraction = {fraction:g}")
    if count is not None and count < 1:
        raise SpecError(f"count must be at least 1, got {count}")
    if fraction is not None and not 0 < fraction <= 1:
        cure = f"; for a fixed cohort use count = {fraction:g}" if fraction > 1 else ""
        raise SpecError(f"fraction must be in (0, 1], got {fraction:g}{cure}")


def check_population(count: int | None, population: int) -> None:
    """Raise `SpecError` if `count` is larger than the population."""
    if count is not None and count > population:
        raise SpecError(
            f"count = {count} is more than the population of {population}; "
            f'lower it, raise partition.clients, or use selector.name = "all"'
        )


def cohort_size(count: int | None, fraction: float | None, available: int) -> int:
    """The cohort size, limited by the number of available clients."""
    if count is not None:
        return min(count, available)
    return max(1, round((fraction or 0.1) * available))
