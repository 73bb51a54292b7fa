"""Dead ReLU: attackers push biases down, so that units never become active again.

It changes only a few numbers: biases are short compared with the matrices of an update, and rules that
compare whole updates overlook them. Once a unit's output is 0 for all samples, no honest gradient revives it.

    update of a vector <- update - shift;  matrices as they are           -> `DeadRelu.forge`

Departures: none; the attack is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class DeadRelu(Attack):
    """Attackers push all biases down by `shift`, and leave matrices as they are."""

    shift: float = 1.0

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: x - self.shift if x.dim() == 1 else x)
