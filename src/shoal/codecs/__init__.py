"""The codecs, by name."""

from shoal.codecs.float16 import Float16
from shoal.codecs.low_rank import LowRank
from shoal.codecs.raw import Raw
from shoal.core.codec import Codec

CODECS: dict[str, type[Codec]] = {"raw": Raw, "float16": Float16, "low_rank": LowRank}
