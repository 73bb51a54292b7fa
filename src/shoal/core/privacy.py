"""The protocol of a privacy mechanism: how a client limits what its replies reveal."""

from __future__ import annotations

from abc import ABC, abstractmethod

from shoal.core.key import Key
from shoal.core.types import Reply


class Privacy(ABC):
    """Changes a reply before it leaves the client: after an attack, before compression and encoding."""

    min_samples: int  # clients with fewer samples do not take part: a sum over few samples hides little

    @abstractmethod
    def protect(self, reply: Reply, key: Key) -> Reply:
        """The reply that may leave the client."""
