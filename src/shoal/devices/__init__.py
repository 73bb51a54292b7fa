"""The kinds of devices, by name."""

from shoal.core.devices import Devices
from shoal.devices.constant import ConstantDevices
from shoal.devices.lognormal import LognormalDevices
from shoal.devices.tiers import TierDevices
from shoal.devices.trace import TraceDevices

DEVICES: dict[str, type[Devices]] = {
    "tiers": TierDevices,
    "constant": ConstantDevices,
    "lognormal": LognormalDevices,
    "trace": TraceDevices,
}
