"""Small pieces that methods are made of. The aggregators, by name."""

from shoal.parts.aggregators import Aggregator, Mean
from shoal.parts.critical import CriticalParameters
from shoal.parts.robust import ClippedMean, GeometricMedian, Krum, Median, MultiKrum, TrimmedMean
from shoal.parts.trust import Similarity

AGGREGATORS: dict[str, type[Aggregator]] = {
    "mean": Mean,
    "krum": Krum,
    "multikrum": MultiKrum,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "geomedian": GeometricMedian,
    "normclip": ClippedMean,
    "fedcpa": CriticalParameters,
    "dsvd": Similarity,
}
