"""Methods that are FedAvg with a robust aggregator instead of the mean.

Their papers and equations are in the files of the aggregators, such as `aggregators/krum.py`.

Departures: see those files.
"""

from __future__ import annotations

from shoal.aggregators import (
    bucketing,
    bulyan,
    centered_clip,
    dnc,
    fedcpa,
    flame,
    fltrust,
    foolsgold,
    geomedian,
    krum,
    normclip,
    trimmed_mean,
)
from shoal.methods.recipe import recipe

Bucketing = recipe("aggregator", bucketing.Bucketing)
Bulyan = recipe("aggregator", bulyan.Bulyan)
CenteredClip = recipe("aggregator", centered_clip.CenteredClip)
DnC = recipe("aggregator", dnc.DnC)
FedCPA = recipe("aggregator", fedcpa.CriticalParameters, name="FedCPA")
Flame = recipe("aggregator", flame.Flame)
FLTrust = recipe("aggregator", fltrust.FLTrust)
FoolsGold = recipe("aggregator", foolsgold.FoolsGold)
GeoMedian = recipe("aggregator", geomedian.GeometricMedian, name="GeoMedian")
Krum = recipe("aggregator", krum.Krum)
Median = recipe("aggregator", trimmed_mean.Median)
MultiKrum = recipe("aggregator", krum.MultiKrum)
NormClip = recipe("aggregator", normclip.ClippedMean, name="NormClip")
TrimmedMean = recipe("aggregator", trimmed_mean.TrimmedMean)
