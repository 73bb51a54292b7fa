"""The kinds of arrivals, by name."""

from shoal.arrivals.csv_file import CsvArrivals
from shoal.arrivals.listed import ListedArrivals
from shoal.arrivals.rate import RateArrivals
from shoal.core.arrivals import Arrivals

ARRIVALS: dict[str, type[Arrivals]] = {"list": ListedArrivals, "rate": RateArrivals, "csv": CsvArrivals}
