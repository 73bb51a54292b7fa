"""The data of one site, from common file formats to samples; independent of simulations.

source = SiteSource("north", (CsvFile(path, separator=""),), SiteOptions(label="sick"))
summary = source.summary()              # all that leaves the site
agreed = agree([summary, *others])      # computed from the summaries of all sites
samples = source.load(agreed)           # x and y, for training and for testing
"""

from shoal.data.sites.agreement import Agreement, agree
from shoal.data.sites.array_file import ArrayFile
from shoal.data.sites.csv_file import CsvFile
from shoal.data.sites.image_folder import ImageFolder
from shoal.data.sites.parquet_file import ParquetFile
from shoal.data.sites.piece import SiteFile, SiteOptions, SitePiece
from shoal.data.sites.source import SiteSamples, SiteSource
from shoal.data.sites.survey import SiteSummary

__all__ = [
    "Agreement",
    "ArrayFile",
    "CsvFile",
    "ImageFolder",
    "ParquetFile",
    "SiteFile",
    "SiteOptions",
    "SitePiece",
    "SiteSamples",
    "SiteSource",
    "SiteSummary",
    "agree",
]
