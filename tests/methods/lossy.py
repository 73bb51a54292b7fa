"""An engine whose replies get lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.core.engine import Delivery


class Refusing:
    """All replies of one round, counted from 0, get lost."""

    def __init__(self, engine: Any, round: int) -> None:
        self._engine, self._round = engine, round

    def exchange(self, work: Any, cohort: Any, message: Any, key: Any) -> Iterator[Delivery]:
        for delivery in self._engine.exchange(work, cohort, message, key):
            for single in delivery.singles():
                lost = work.round == self._round and work.verb == "update"
                yield single._replace(reply=None, reason="lost") if lost else single

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
