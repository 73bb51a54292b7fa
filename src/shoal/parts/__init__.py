"""Small pieces that methods are made of. The aggregators, by name."""

from shoal.parts.aggregators import Aggregator, Mean
from shoal.parts.robust import ClippedMean, GeometricMedian, Krum, Median, MultiKrum, TrimmedMean

AGGREGATORS: dict[str, type[Aggregator]] = {
    "mean": Mean,
    "krum": Krum,
    "multikrum": MultiKrum,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "geomedian": GeometricMedian,
    "normclip": ClippedMean,
}
