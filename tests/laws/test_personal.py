"""Methods for models of one's own with every codec, attack and kind of device, and with all axes at once."""

import pytest
from toy import after, same, setup

from shoal import SpecError
from shoal.attacks import ATTACKS
from shoal.codecs import CODECS
from shoal.core.tree import all_finite
from shoal.devices import DEVICES

PERSONAL = [
    *("partialfed", "fedfina", "fedlp", "fedlps", "fedlg", "fedamp", "fedfusion", "ditto", "fedper"),
    *("fedrep", "apfl"),
]
COMBINED = {
    "chain": {"name": "chain", "chain": [{"name": "top_k", "share": 0.5}, {"name": "uniform", "bits": 4}]},
    "each_way": {"name": "each_way", "up": {"name": "uniform"}, "down": {"name": "float16"}},
}
ARRIVALS = {"name": "list", "join": [{"round": 2, "clients": "5-7"}], "leave": [{"round": 2, "clients": "0"}]}

pytestmark = [
    pytest.mark.filterwarnings("ignore:with a lossy codec"),
    pytest.mark.parametrize("method", PERSONAL),
]


def outcome(method, rounds=1, **axes):
    """All that is known after some rounds, or why the axes are refused."""
    try:
        return after(setup(method, **axes), rounds)
    except SpecError as reason:
        return str(reason)


def check(method, rounds=1, **axes):
    """It ends in finite numbers, the same in blocks, or is refused with the same reason."""
    found = [outcome(method, rounds, **axes, engine={"mode": mode}) for mode in ("serial", "block")]
    if isinstance(found[0], str):
        assert found[0] == found[1] != ""
    else:
        assert same(*found)
        assert all_finite(found[0].state)
    return found[0]


def test_with_every_codec(method):
    for name in CODECS:
        assert not isinstance(check(method, codec=COMBINED.get(name, name)), str), name


def test_with_every_attack(method):
    """That blocks have the same bits under attack is a law of its own."""
    for name in ATTACKS:
        found = outcome(method, attack={"name": name, "attackers": [1, 3]}, engine={"mode": "block"})
        assert found if isinstance(found, str) else all_finite(found.state), name


def test_with_every_kind_of_device(method):
    for name in set(DEVICES) - {"trace"}:  # that needs a file
        assert not isinstance(check(method, devices=name), str), name


def test_with_all_axes_at_once(method):
    axes = {"codec": "qsgd", "attack": {"name": "sign_flip", "attackers": [1, 3]}, "devices": "tiers"}
    assert not isinstance(check(method, 3, **axes, arrivals=ARRIVALS, selector={"count": 3}), str)
