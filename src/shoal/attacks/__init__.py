"""The attacks, by name."""

from shoal.attacks.alie import Alie
from shoal.attacks.backdoor import Backdoor
from shoal.attacks.dead_relu import DeadRelu
from shoal.attacks.defect import Defect
from shoal.attacks.drift import Drift
from shoal.attacks.false_scores import FalseScores
from shoal.attacks.fang import Fang
from shoal.attacks.free_rider import FreeRider
from shoal.attacks.garbage import Garbage
from shoal.attacks.gaussian import Gaussian
from shoal.attacks.ipm import Ipm
from shoal.attacks.label_flip import LabelFlip
from shoal.attacks.mimic import Mimic
from shoal.attacks.min_max import MinMax
from shoal.attacks.min_sum import MinSum
from shoal.attacks.same_value import SameValue
from shoal.attacks.scale import Scale
from shoal.attacks.scaled_backdoor import ScaledBackdoor
from shoal.attacks.sign_flip import SignFlip
from shoal.attacks.stealth import Stealth
from shoal.attacks.sybils import Sybils
from shoal.core.attack import Attack

ATTACKS: dict[str, type[Attack]] = {
    "label_flip": LabelFlip,
    "backdoor": Backdoor,
    "scaled_backdoor": ScaledBackdoor,
    "sign_flip": SignFlip,
    "scale": Scale,
    "gaussian": Gaussian,
    "same_value": SameValue,
    "free_rider": FreeRider,
    "alie": Alie,
    "ipm": Ipm,
    "min_max": MinMax,
    "min_sum": MinSum,
    "fang": Fang,
    "sybils": Sybils,
    "mimic": Mimic,
    "drift": Drift,
    "defect": Defect,
    "dead_relu": DeadRelu,
    "false_scores": FalseScores,
    "stealth": Stealth,
    "garbage": Garbage,
}
