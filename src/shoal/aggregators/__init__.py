"""The aggregators, by name."""

from shoal.aggregators.aggregator import Aggregator
from shoal.aggregators.bucketing import Bucketing
from shoal.aggregators.bulyan import Bulyan
from shoal.aggregators.centered_clip import CenteredClip
from shoal.aggregators.dnc import DnC
from shoal.aggregators.dsvd import Similarity
from shoal.aggregators.fedcpa import CriticalParameters
from shoal.aggregators.flame import Flame
from shoal.aggregators.fltrust import FLTrust
from shoal.aggregators.foolsgold import FoolsGold
from shoal.aggregators.geomedian import GeometricMedian
from shoal.aggregators.krum import Krum, MultiKrum
from shoal.aggregators.mean import Mean
from shoal.aggregators.normclip import ClippedMean
from shoal.aggregators.trimmed_mean import Median, TrimmedMean

AGGREGATORS: dict[str, type[Aggregator]] = {
    "mean": Mean,
    "dsvd": Similarity,
    "fedcpa": CriticalParameters,
    "krum": Krum,
    "multikrum": MultiKrum,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "geomedian": GeometricMedian,
    "normclip": ClippedMean,
    "fltrust": FLTrust,
    "centered_clip": CenteredClip,
    "bucketing": Bucketing,
    "dnc": DnC,
    "foolsgold": FoolsGold,
    "flame": Flame,
    "bulyan": Bulyan,
}
