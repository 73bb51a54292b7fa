"""Free riding: attackers do not train, they return the model that they were sent.

Fraboni, Vidal, Lorenzi: Free-rider Attacks on Model Aggregation in Federated Learning, AISTATS 2021.

    plain:      update <- 0                                       -> `FreeRider.forge`, noise = 0
    disguised:  update <- noise t^-decay N(0, 1) in round t       -> `FreeRider.forge`

They want the model and mean no harm: what they do is slow training down.

Departures: they claim the samples that they hold. They do train, for nothing, so that methods with a client
memory work as ever. The paper takes the size of the noise from the first change of the model; here it is
a field.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered, normal
from shoal.core.errors import SpecError
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class FreeRider(Attack):
    """Attackers return the model as it came, with a little noise so that nobody notices."""

    noise: float = 0.001  # its deviation in the first round; 0: none
    decay: float = 1.0  # how fast it fades

    def check(self) -> None:
        """See `Attack`."""
        for name, value in (("noise", self.noise), ("decay", self.decay)):
            if value < 0:
                raise SpecError(f"{name} must be at least 0, got {value:g}")

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        size = self.noise * (context.round + 1) ** -self.decay
        noise = normal(context.key.fold("lie"))
        return altered(reply, lambda x: size * noise(x))
