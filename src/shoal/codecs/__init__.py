"""The codecs, by name."""

from collections.abc import Callable

from shoal.codecs.combined import Chain, EachWay
from shoal.codecs.fedpaq import FedPaq
from shoal.codecs.float_format import FloatFormat, float16
from shoal.codecs.low_rank import LowRank
from shoal.codecs.qsgd import Qsgd
from shoal.codecs.raw import Raw
from shoal.codecs.sign import Sign
from shoal.codecs.sparse import RandomK, TopK
from shoal.codecs.uniform import UniformAffine
from shoal.core.codec import Codec

CODECS: dict[str, Callable[..., Codec]] = {
    "raw": Raw,
    "float": FloatFormat,
    "float16": float16,
    "uniform": UniformAffine,
    "qsgd": Qsgd,
    "fedpaq": FedPaq,
    "top_k": TopK,
    "random_k": RandomK,
    "sign": Sign,
    "low_rank": LowRank,
    "chain": Chain,
    "each_way": EachWay,
}

IMPLIED = {"chain": "chain", "up": "each_way", "down": "each_way"}  # fields that imply the codec
