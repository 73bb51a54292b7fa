"""The methods, by name."""

from shoal.core.method import Method, Recipe
from shoal.methods.clusamp import CluSamp
from shoal.methods.dsvd import DSVD
from shoal.methods.fedavg import FedAvg
from shoal.methods.fedbn import FedBN
from shoal.methods.fedcpa import FedCPA
from shoal.methods.fedgen import FedGen
from shoal.methods.fedmut import FedMut
from shoal.methods.fedntd import FedNTD
from shoal.methods.fedprox import FedProx
from shoal.methods.fedqp import FedQP
from shoal.methods.fedsvd import FedSVD
from shoal.methods.fltrust import FLTrust
from shoal.methods.fsi import Fsi
from shoal.methods.geomedian import GeoMedian
from shoal.methods.krum import Krum, MultiKrum
from shoal.methods.local import Local
from shoal.methods.normclip import NormClip
from shoal.methods.pso import Pso
from shoal.methods.qfedavg import QFedAvg
from shoal.methods.scaffold import Scaffold
from shoal.methods.trimmed_mean import Median, TrimmedMean

METHODS: dict[str, type[Method] | type[Recipe]] = {
    "local": Local,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "clusamp": CluSamp,
    "fedntd": FedNTD,
    "fedgen": FedGen,
    "fedbn": FedBN,
    "dsvd": DSVD,
    "qfedavg": QFedAvg,
    "fedcpa": FedCPA,
    "fedsvd": FedSVD,
    "fedmut": FedMut,
    "fedqp": FedQP,
    "fsi": Fsi,
    "pso": Pso,
    "krum": Krum,
    "multikrum": MultiKrum,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "geomedian": GeoMedian,
    "normclip": NormClip,
    "fltrust": FLTrust,
}
