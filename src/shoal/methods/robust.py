"""Methods that are FedAvg with a robust aggregator instead of the mean.

Their papers and equations are in the files of the aggregators, such as `aggregators/krum.py`.

Departures: see there.
"""

from __future__ import annotations

from shoal.aggregators import fedcpa, fltrust, geomedian, krum, normclip, trimmed_mean
from shoal.methods.recipe import recipe

FedCPA = recipe("aggregator", fedcpa.CriticalParameters, name="FedCPA")
FLTrust = recipe("aggregator", fltrust.FLTrust)
GeoMedian = recipe("aggregator", geomedian.GeometricMedian, name="GeoMedian")
Krum = recipe("aggregator", krum.Krum)
Median = recipe("aggregator", trimmed_mean.Median)
MultiKrum = recipe("aggregator", krum.MultiKrum)
NormClip = recipe("aggregator", normclip.ClippedMean, name="NormClip")
TrimmedMean = recipe("aggregator", trimmed_mean.TrimmedMean)
