"""The attacks, by name."""

from shoal.attacks.label_flip import LabelFlip
from shoal.attacks.sign_flip import SignFlip
from shoal.core.attack import Attack

ATTACKS: dict[str, type[Attack]] = {"label_flip": LabelFlip, "sign_flip": SignFlip}
