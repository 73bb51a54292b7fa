"""The attacks, by name."""

from shoal.attacks.alie import Alie
from shoal.attacks.backdoor import Backdoor
from shoal.attacks.free_rider import FreeRider
from shoal.attacks.gaussian import Gaussian
from shoal.attacks.ipm import Ipm
from shoal.attacks.label_flip import LabelFlip
from shoal.attacks.min_max import MinMax
from shoal.attacks.same_value import SameValue
from shoal.attacks.scale import Scale
from shoal.attacks.sign_flip import SignFlip
from shoal.core.attack import Attack

ATTACKS: dict[str, type[Attack]] = {
    "label_flip": LabelFlip,
    "backdoor": Backdoor,
    "sign_flip": SignFlip,
    "scale": Scale,
    "gaussian": Gaussian,
    "same_value": SameValue,
    "free_rider": FreeRider,
    "alie": Alie,
    "ipm": Ipm,
    "min_max": MinMax,
}
