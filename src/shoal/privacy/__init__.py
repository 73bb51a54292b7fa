"""What protects clients, by name."""

from shoal.core.privacy import Privacy
from shoal.privacy.gaussian import Gaussian

PRIVACY: dict[str, type[Privacy]] = {"gaussian": Gaussian}
