"""Whatever the bytes: a tree, or a `PacketError`."""

import json
import struct
import sys
import tracemalloc
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.errors import PacketError
from shoal.core.serialization import from_buffer, from_bytes, into_buffer, to_bytes
from shoal.core.types import Reply


def packet(description, data=b""):
    header = description if isinstance(description, bytes) else json.dumps(description).encode()
    return struct.pack("<I", len(header)) + header + data


BAD = {
    "nothing": b"",
    "three bytes": b"\1\0\0",
    "a header beyond the end": struct.pack("<I", 100) + b"[]",
    "a header of four gigabytes": b"\xff\xff\xff\xff[]",
    "no JSON": packet(b"{]"),
    "not even text": packet(b"\xff\xfe\xfd\xfc"),
    "a number of many digits": packet(b"1" * 5000),
    "a JSON object": packet({"a": 1}),
    "an empty list": packet([]),
    "an unknown kind": packet(["x", []]),
    "a kind that is a list": packet([["t"], "float32", [2]]),
    "nested too deep": packet(b'["l",[' * 200 + b"]]" * 200),
    "nested without end": packet(b"[" * 100_000),
    "a tensor without a shape": packet(["t", "float32"]),
    "an unknown format": packet(["t", "float33", [1]], b"1234"),
    "a format that is a list": packet(["t", ["float32"], [1]], b"1234"),
    "a negative shape": packet(["t", "float32", [-1]], b"1234"),
    "two negative lengths": packet(["t", "float32", [-1, -1]], b"1234"),
    "a shape of text": packet(["t", "float32", ["1"]], b"1234"),
    "a shape with a fraction": packet(["t", "float32", [1.5]], b"1234"),
    "a shape of booleans": packet(["t", "float32", [True]], b"1234"),
    "a shape beyond the end": packet(["t", "float32", [2]], b"1234"),
    "a shape beyond all memory": packet(["t", "float32", [2**50, 2**9]], b"1234"),
    "an empty shape that overflows": packet(["t", "float32", [0, 2**62, 2**62]]),
    "a hundred axes": packet(["t", "float32", [1] * 100], b"1234"),
    "bytes that follow": packet(["t", "uint8", [1]], b"12"),
    "a name twice": packet(["d", [["a", 1], ["a", 2]]]),
    "a name that is a list": packet(["d", [[["a"], 1]]]),
    "an entry of three": packet(["d", [["a", 1, 2]]]),
    "a NamedTuple with a field too few": packet(["n", "shoal.core.types:Reply", [1, 2]]),
    "a class that is no tuple": packet(["n", "subprocess:Popen", ["true"]]),
    "a function": packet(["n", "os:abort", []]),
    "a module that is not imported": packet(["n", "antigravity:Thing", []]),
    "a name without a module": packet(["n", "", []]),
    "too many nodes": packet(["l", [0] * 200_000]),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_packet_is_refused(kind):
    with pytest.raises(PacketError):
        from_bytes(BAD[kind])


def test_no_code_of_a_class_runs(monkeypatch):
    class Sly(tuple):
        _fields = ("a",)

        def __new__(cls, *values):
            raise AssertionError("its code was run")

    monkeypatch.setattr(sys.modules[__name__], "Sly", Sly, raising=False)
    assert from_bytes(packet(["n", f"{__name__}:Sly", [1]]))[0] == 1


GOOD = to_bytes(Reply({"w": torch.ones(5), "n": [1, None]}, torch.tensor(2.0), {}))


@given(st.integers(0, len(GOOD) - 1))
def test_a_packet_that_was_cut_is_refused(length):
    with pytest.raises(PacketError):
        from_bytes(GOOD[:length])
    with pytest.raises(PacketError):
        from_buffer(memoryview(bytearray(GOOD[:length])))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_tree_or_an_error(data):
    with suppress(PacketError):
        assert to_bytes(from_bytes(data))


def test_a_buffer_may_go_on_after_its_packet():
    buffer = memoryview(bytearray(GOOD + bytes(100)))
    assert to_bytes(from_buffer(buffer)) == GOOD


def test_a_buffer_receives_the_bytes_of_the_packet_whatever_the_layout():
    """Tensors in other layouts, and some that begin where their type is not aligned."""
    images = torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    tree = {
        "last": images,
        "odd": torch.tensor([True, False, True]),
        "behind": torch.arange(4.0),
        "turned": torch.arange(6, dtype=torch.int64).reshape(2, 3).T,
        "none": torch.empty(0, 3),
        "half": torch.ones(3, dtype=torch.float8_e5m2),
        "learned": torch.ones(2, requires_grad=True),
    }
    expected = to_bytes(tree)
    buffer = memoryview(bytearray(len(expected) + 7))
    assert into_buffer(tree, buffer) == len(expected)
    assert bytes(buffer) == expected + bytes(7)


@pytest.mark.parametrize("part", [b"[],", b"{},", b'["t","bool",[]],', b"1.5,", b'"a",'])
def test_memory_is_a_small_multiple_of_the_input(part):
    data = packet(b'["l",[' + part * (2**17 // len(part)) + b"0]]", b"\1" * 2**14)
    tracemalloc.start()
    with suppress(PacketError):
        from_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * len(data)
