"""Gaussian noise: attackers add noise to their update.

Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent, NeurIPS 2017, section 5 ("Gaussian" workers).

        update <- update + sigma N(0, 1), per coordinate            -> `Gaussian.forge`

Departures: the paper sends only noise, with a standard deviation of 200. With noise that large, adding the
update makes no difference; but with it, sigma = 0 is an honest client.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered, normal
from shoal.core.errors import SpecError
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Gaussian(Attack):
    """Attackers add Gaussian noise of standard deviation `sigma` to their update."""

    sigma: float = 1.0

    def check(self) -> None:
        """See `Attack`."""
        if self.sigma < 0:
            raise SpecError(f"sigma must be at least 0, got {self.sigma:g}")

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        noise = normal(context.key.fold("lie"))
        return altered(reply, lambda x: x + self.sigma * noise(x))
