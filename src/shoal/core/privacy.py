"""The protocol of privacy: what a client does so that less can be learned from its replies."""

from __future__ import annotations

from abc import ABC, abstractmethod

from shoal.core.key import Key
from shoal.core.types import Reply


class Privacy(ABC):
    """Acts on a reply before anything leaves the client: after an attack's lie, before codecs and factors."""

    min_samples: int  # samples: a client with fewer takes no part, because sums over few samples hide little

    @abstractmethod
    def protect(self, reply: Reply, key: Key) -> Reply:
        """The reply that may leave the client."""
