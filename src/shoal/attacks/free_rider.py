"""Free riding: attackers contribute no training and send back the model that they received.

Fraboni, Vidal, Lorenzi: Free-rider Attacks on Model Aggregation in Federated Learning, AISTATS 2021.

    plain:      update <- 0                                       -> `FreeRider.forge`, noise = 0
    disguised:  update <- noise t^-decay N(0, 1) in round t       -> `FreeRider.forge`

Free riders want the model without contributing; they slow training down.

Departures: they report the number of samples that they hold. They still train and discard the result, so
that methods with client memories work. The paper derives the size of the noise from the first change of the
model; here it is a field.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered, normal
from shoal.core.errors import SpecError
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class FreeRider(Attack):
    """Attackers send back the model that they received, disguised by a little noise."""

    noise: float = 0.001  # standard deviation in the first round; 0: no noise
    decay: float = 1.0  # exponent of its decrease over rounds

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
