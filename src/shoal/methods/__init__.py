"""The methods, by name."""

from shoal.core.method import Method, Recipe
from shoal.methods.clusamp import CluSamp
from shoal.methods.dsvd import DSVD
from shoal.methods.fedavg import FedAvg
from shoal.methods.fedavgm import FedAvgM
from shoal.methods.fedbn import FedBN
from shoal.methods.fedgen import FedGen
from shoal.methods.fedmut import FedMut
from shoal.methods.fedntd import FedNTD
from shoal.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from shoal.methods.fedprox import FedProx
from shoal.methods.fedqp import FedQP
from shoal.methods.fedsvd import FedSVD
from shoal.methods.fsi import Fsi
from shoal.methods.genefl import GeneFL
from shoal.methods.local import Local
from shoal.methods.per_cluster import PerCluster
from shoal.methods.pso import Pso
from shoal.methods.qfedavg import QFedAvg
from shoal.methods.robust import (
    Bucketing,
    Bulyan,
    CenteredClip,
    DnC,
    FedCPA,
    Flame,
    FLTrust,
    FoolsGold,
    GeoMedian,
    Krum,
    Median,
    MultiKrum,
    NormClip,
    TrimmedMean,
)
from shoal.methods.scaffold import Scaffold
from shoal.methods.situa_cq import SituaCQ

METHODS: dict[str, type[Method] | type[Recipe]] = {
    "local": Local,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "clusamp": CluSamp,
    "fedntd": FedNTD,
    "fedgen": FedGen,
    "fedbn": FedBN,
    "dsvd": DSVD,
    "qfedavg": QFedAvg,
    "fedsvd": FedSVD,
    "fedmut": FedMut,
    "fedqp": FedQP,
    "fsi": Fsi,
    "pso": Pso,
    "genefl": GeneFL,
    "per_cluster": PerCluster,
    "situa_cq": SituaCQ,
    "fedcpa": FedCPA,
    "krum": Krum,
    "multikrum": MultiKrum,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "geomedian": GeoMedian,
    "normclip": NormClip,
    "fltrust": FLTrust,
    "centered_clip": CenteredClip,
    "bucketing": Bucketing,
    "dnc": DnC,
    "foolsgold": FoolsGold,
    "flame": Flame,
    "bulyan": Bulyan,
}
