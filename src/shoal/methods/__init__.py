"""The methods, by name."""

from shoal.core.method import Method, Recipe
from shoal.methods.apfl import APFL
from shoal.methods.clusamp import CluSamp
from shoal.methods.ditto import Ditto
from shoal.methods.dsvd import DSVD
from shoal.methods.fedamp import FedAMP
from shoal.methods.fedavg import FedAvg
from shoal.methods.fedavgm import FedAvgM
from shoal.methods.fedbn import FedBN
from shoal.methods.fedfina import FedFina
from shoal.methods.fedfusion import FedFusion
from shoal.methods.fedgen import FedGen
from shoal.methods.fedlg import FedLG
from shoal.methods.fedlp import FedLP
from shoal.methods.fedlps import FedLPS
from shoal.methods.fedmut import FedMut
from shoal.methods.fedntd import FedNTD
from shoal.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from shoal.methods.fedper import FedPer
from shoal.methods.fedprox import FedProx
from shoal.methods.fedqp import FedQP
from shoal.methods.fedrep import FedRep
from shoal.methods.fedsvd import FedSVD
from shoal.methods.fsi import Fsi
from shoal.methods.genefl import GeneFL
from shoal.methods.local import Local
from shoal.methods.partialfed import PartialFed
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
    "fedper": FedPer,
    "fedrep": FedRep,
    "partialfed": PartialFed,
    "fedfina": FedFina,
    "fedlg": FedLG,
    "fedlp": FedLP,
    "fedlps": FedLPS,
    "fedamp": FedAMP,
    "fedfusion": FedFusion,
    "ditto": Ditto,
    "apfl": APFL,
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
