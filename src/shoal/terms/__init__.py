"""The terms that can be added to a client's loss, by name."""

from shoal.core.term import Term
from shoal.terms.not_true import NotTrue
from shoal.terms.proximal import Proximal

TERMS: dict[str, type[Term]] = {"proximal": Proximal, "not_true": NotTrue}
