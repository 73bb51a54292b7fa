"""The privacy mechanisms, by name."""

from shoal.core.privacy import Privacy
from shoal.privacy.gaussian import GaussianNoise

PRIVACY: dict[str, type[Privacy]] = {"gaussian": GaussianNoise}
