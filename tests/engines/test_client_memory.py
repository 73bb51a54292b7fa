import pytest
import torch
from toy import same

from shoal.core.engine import Memory
from shoal.engines.client_memory import MemoryStore


def memory(value):
    return Memory({"c": torch.full((100,), float(value))}, None)


@pytest.mark.parametrize("budget", [10**9, 1500, 0])
def test_only_the_accepted_and_the_pending_version_are_kept(budget):
    store = MemoryStore(budget)
    assert store.read(3, None) is None
    store.write(3, None, (0, 0), memory(1))
    store.write(3, None, (1, 0), memory(2))  # the first was never accepted
    with pytest.raises(KeyError):
        store.read(3, (0, 0))
    store.write(3, (1, 0), (2, 0), memory(3))
    assert same(store.read(3, (1, 0)), memory(2))
    assert same(store.read(3, (2, 0)), memory(3))
    store.write(3, (1, 0), (3, 0), memory(4))  # the second attempt got lost
    with pytest.raises(KeyError):
        store.read(3, (2, 0))
    assert same(store.read(3, (1, 0)), memory(2))


@pytest.mark.parametrize("budget", [10**9, 0])
def test_an_accepted_version_replaces_the_one_before(budget):
    store = MemoryStore(budget)
    for client in (3, 4):
        store.write(client, None, (0, 0), memory(1))
        store.write(client, (0, 0), (1, 0), memory(2))
    store.forget_replaced({3: (1, 0), 4: (0, 0)})  # the second reply of 4 is not accepted, or not yet
    with pytest.raises(KeyError):
        store.read(3, (0, 0))
    assert same(store.read(3, (1, 0)), memory(2))
    assert same(store.read(4, (0, 0)), memory(1))
    assert same(store.read(4, (1, 0)), memory(2))
    store.write(3, (1, 0), (2, 0), memory(3))
    assert same(store.read(3, (1, 0)), memory(2))


def test_what_does_not_fit_lies_on_disk_and_comes_back():
    store = MemoryStore(budget=2000)
    for client in range(20):
        store.write(client, None, (0, 0), memory(client))
    files = list(store._on_disk.values())
    assert len(files) > 10
    assert all(path.exists() for path in files)
    for client in range(20):
        assert same(store.read(client, (0, 0)), memory(client))
    for client in range(20):
        store.write(client, (0, 0), (1, 0), memory(-client))
        store.write(client, (1, 0), (2, 0), memory(2 * client))
    assert not any(path.exists() for path in files)  # their versions are past


def test_reading_does_not_change_what_lies_on_disk():
    store = MemoryStore(budget=0)
    store.write(0, None, (0, 0), memory(5))
    store.read(0, (0, 0)).method["c"].zero_()
    assert same(store.read(0, (0, 0)), memory(5))
