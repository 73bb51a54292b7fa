from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import same

from shoal.core import serialization, tree
from shoal.core.flat import Layout
from shoal.core.tree import rows_of
from shoal.core.types import Reply, Weights

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


class Pair(NamedTuple):
    first: object
    second: object


def tensor(dtype, shape):
    return torch.arange(1, 1 + int(torch.Size(shape).numel())).reshape(shape).to(dtype)


TENSORS = st.builds(tensor, st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3))
LEAVES = st.one_of(
    TENSORS, st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.floats(allow_nan=False)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=6,
)


@given(TREES)
def test_a_tree_survives_bytes(value):
    packet = serialization.to_bytes(value)
    assert len(packet) == serialization.nbytes(value)
    back = serialization.from_bytes(packet)
    assert serialization.to_bytes(back) == packet
    assert serialization.flatten(back)[0] == serialization.flatten(value)[0]
    for one, two in zip(tree.tensors(value), tree.tensors(back), strict=True):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)


def test_types_come_back():
    value = Reply({"update": Weights({"w": torch.ones(2)}, {})}, torch.tensor(3.0), {})
    back = serialization.from_bytes(serialization.to_bytes(value))
    assert isinstance(back, Reply)
    assert isinstance(back.payload["update"], Weights)


def test_a_packet_cannot_name_what_it_likes():
    packet = serialization.to_bytes(Pair(1, 2))
    for name in (b"subprocess:Popen    ", b"toy:no_such_class   ", b"never_imported:Thing"):
        mine = f"{Pair.__module__}:Pair".encode()
        with pytest.raises(ValueError, match="which is not a NamedTuple of an imported module"):
            serialization.from_bytes(packet.replace(mine, name[: len(mine)].ljust(len(mine))))


def test_what_cannot_travel_says_so():
    with pytest.raises(TypeError, match="not set"):
        serialization.to_bytes({"a": {1, 2}})


def test_arithmetic_goes_leaf_by_leaf():
    one, two = {"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([3.0, 5.0])}
    assert tree.add(one, two)["a"].tolist() == [4.0, 7.0]
    assert tree.subtract(two, one)["a"].tolist() == [2.0, 3.0]
    assert same(tree.zeros_like(one), {"a": torch.zeros(2)})


def test_what_is_finite_and_what_is_empty():
    assert tree.all_finite({"a": torch.ones(2), "b": torch.tensor([1]), "c": "text"})
    assert not tree.all_finite([torch.tensor([1.0, float("inf")])])
    assert serialization.is_empty((None, {}, []))
    assert not serialization.is_empty((None, 0))


def pairs(vectors):
    layout = Layout(("a", "b"), (torch.Size([100]), torch.Size([10, 10])))
    return [Pair(layout.tree(vector), torch.tensor(float(i))) for i, vector in enumerate(vectors)]


def test_rows_of_one_tensor_are_stacked_without_a_copy():
    whole = torch.arange(600.0).reshape(3, 200)
    found = rows_of(pairs(whole))
    assert found.first.vector.data_ptr() == whole.data_ptr()
    assert torch.equal(found.first.vector, whole)
    assert torch.equal(found.first["b"], whole[:, 100:].reshape(3, 10, 10))
    assert found.second.tolist() == [0.0, 1.0, 2.0]
    parts = rows_of([row[50:150] for row in whole])
    assert torch.equal(parts, whole[:, 50:150])
    assert parts.data_ptr() == whole[0, 50:].data_ptr()


@pytest.mark.parametrize(
    "trees",
    [
        pairs([torch.zeros(200), torch.zeros(200)]),
        pairs(torch.zeros(3, 200)[[0, 2, 1]].unbind()[::-1]),
        [torch.zeros(2, 200)[0]] * 2,
        [torch.zeros(2, 200)[0], torch.zeros(2, 199)[1]],
        [{"a": torch.zeros(2)}, {"b": torch.zeros(2)}],
        [{"a": torch.zeros(2)}, Pair(1, 2)],
        [Pair(1.5, 2.0), Pair(2.5, 2.0)],
        [*torch.zeros(200, 2).T],
    ],
    ids=["apart", "backwards", "the same", "lengths", "names", "kinds", "numbers", "columns"],
)
def test_what_does_not_lie_side_by_side_is_not_stacked(trees):
    assert rows_of(trees) is None
