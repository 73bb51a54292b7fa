import copy
import pickle

import pytest
import torch

from shoal.core.flat import Flat, Layout, flat, in_one_vector, vectors
from shoal.core.serialization import from_bytes, nbytes, to_bytes
from shoal.core.tree import (
    add,
    all_finite,
    elementwise,
    row,
    squared_norm,
    stack,
    subtract,
    tree_map,
    zeros_like,
)

VALUES = {"w": torch.arange(6.0).view(2, 3), "b": torch.tensor([7.0, -8.0])}


def test_it_is_a_mapping_of_views_of_one_vector():
    together = flat(VALUES)
    assert list(together) == ["w", "b"]
    assert len(together) == 2
    assert "b" in together
    assert "c" not in together
    assert all(torch.equal(together[name], value) for name, value in VALUES.items())
    together.vector[0] = 99
    assert together["w"][0, 0] == 99
    assert {**together}.keys() == VALUES.keys()


def test_its_names_compare_like_those_of_a_dict():
    names = flat(VALUES).keys()
    assert list(names) == ["w", "b"]
    assert names == VALUES.keys()
    assert names > {"w"}
    assert names - {"w"} == {"b"}


def test_stacked_rows_are_views_too():
    layout = flat(VALUES).layout
    rows = layout.tree(torch.arange(16.0).view(2, 8))
    assert rows["w"].shape == (2, 2, 3)
    assert torch.equal(row(rows, 1)["b"], torch.tensor([14.0, 15.0]))
    assert torch.equal(stack([row(rows, 0), row(rows, 1)]).vector, rows.vector)


def test_what_differs_in_number_format_stays_apart():
    mixed = {"a": torch.zeros(2), "n": torch.zeros(2, dtype=torch.int64)}
    assert flat(mixed) is mixed
    assert flat({}) == {}
    with pytest.raises(ValueError, match="cannot share one vector"):
        in_one_vector(mixed)


def test_arithmetic_is_that_of_ordinary_dicts_and_stays_in_one_vector():
    first, second = flat(VALUES), flat({name: 2 * value + 1 for name, value in VALUES.items()})
    for function, result in ((torch.add, add(first, second)), (torch.sub, subtract(first, second))):
        assert isinstance(result, Flat)
        expected = tree_map(function, dict(first), dict(second))
        assert all(torch.equal(result[name], value) for name, value in expected.items())
    assert not zeros_like(first).vector.any()
    assert squared_norm(first) == sum(float(value.square().sum()) for value in VALUES.values())


def test_other_layouts_are_met_tensor_by_tensor():
    first, turned = flat(VALUES), flat(dict(reversed(VALUES.items())))
    assert vectors(first, turned) is None
    assert vectors(first, VALUES) is None
    assert vectors(first, flat(VALUES)) is not None  # an equal layout, not the same one
    found = elementwise(torch.sub, first, turned)
    assert not any(value.any() for value in found.values())


def test_it_travels_as_a_dict_of_the_same_length():
    tree = {"x": flat(VALUES), "stacked": Layout(("a",), (torch.Size([2]),)).tree(torch.zeros(3, 2))}
    packet = to_bytes(tree)
    assert nbytes(tree) == len(packet) == len(to_bytes({name: dict(value) for name, value in tree.items()}))
    assert torch.equal(from_bytes(packet)["x"]["w"], VALUES["w"])
    for copied in (pickle.loads(pickle.dumps(tree["x"])), copy.deepcopy(tree["x"])):
        assert type(copied) is dict
        assert torch.equal(copied["w"], VALUES["w"])


def test_a_number_that_is_not_finite_shows():
    together = flat(VALUES)
    assert all_finite({"a": together})
    together["b"][1] = torch.nan
    assert not all_finite({"a": together})


@pytest.mark.parametrize("names", [["a"], ["b"], ["c"], ["a", "b"], ["a", "b", "c"], ["a", "c"]])
@pytest.mark.parametrize("kind", [dict, flat])
def test_a_part_takes_the_place_of_its_own(names, kind):
    values = flat({name: torch.arange(float(size)) for name, size in (("a", 2), ("b", 3), ("c", 4))})
    part = kind({name: -1 - values[name] for name in names})
    changed = values.with_part(part)
    for name, value in values.items():
        assert torch.equal(changed[name], -1 - value if name in names else value)
    assert values.vector.tolist() == [0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert changed.layout == values.layout
