"""The selectors, by name."""

from shoal.core.selector import Selector
from shoal.selectors.clustered import Clustered
from shoal.selectors.fastest import Fastest
from shoal.selectors.oort import Oort
from shoal.selectors.power_of_choice import PowerOfChoice
from shoal.selectors.round_robin import RoundRobin
from shoal.selectors.uniform import All, Uniform

SELECTORS: dict[str, type[Selector]] = {
    "uniform": Uniform,
    "all": All,
    "clustered": Clustered,
    "round_robin": RoundRobin,
    "power_of_choice": PowerOfChoice,
    "fastest": Fastest,
    "oort": Oort,
}
