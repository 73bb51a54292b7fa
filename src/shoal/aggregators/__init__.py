"""The aggregators, by name."""

from shoal.aggregators.aggregator import Aggregator
from shoal.aggregators.dsvd import Similarity
from shoal.aggregators.fedcpa import CriticalParameters
from shoal.aggregators.fltrust import FLTrust
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
}
