"""The selectors, by name."""

from shoal.core.selector import Selector
from shoal.selectors.clustered import Clustered
from shoal.selectors.uniform import All, Uniform

SELECTORS: dict[str, type[Selector]] = {"uniform": Uniform, "all": All, "clustered": Clustered}
