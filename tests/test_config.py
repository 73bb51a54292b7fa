from dataclasses import dataclass
from typing import Literal

import pytest

from shoal import SpecError
from shoal.config import Catalogue, arguments, choose, convert, part, read, write


@dataclass(frozen=True)
class Inner:
    size: int = 3


@dataclass(frozen=True)
class Outer:
    rate: float
    kind: Literal["a", "b"] = "a"
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    maybe: int | None = None
    flag: bool = False

    def __post_init__(self):
        if self.rate < 0:
            raise SpecError(f"rate must be >= 0, got {self.rate}")


def maker(name: str, *, size: int = 1) -> str:
    """Makes."""
    return name * size


PARTS = Catalogue("part", {"inner": Inner, "outer": Outer})
CATALOGUES = {Inner: PARTS}


def test_a_table_is_a_call():
    table = {"rate": 1, "kind": "b", "inner": {"name": "inner", "size": 5}, "many": ["inner"], "flag": True}
    made = read(Outer, table, "outer", CATALOGUES)
    assert made == Outer(1.0, "b", Inner(5), (Inner(3),), None, True)
    assert isinstance(made.rate, float)


def test_writing_is_the_inverse():
    made = Outer(1.0, "b", Inner(5), (Inner(3), Inner(4)), 7, True)
    assert read(Outer, write(made, CATALOGUES), "outer", CATALOGUES) == made
    assert "maybe" not in write(Outer(1.0), CATALOGUES)


def test_functions_are_constructors_too():
    assert set(arguments(maker)) == {"size"}
    assert arguments(maker)["size"].default == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"rate": 1, "kidn": "a"}, r"unknown key outer.kidn; did you mean outer.kind\?"),
        ({"rate": 1, "zzz": 1}, "unknown key outer.zzz; valid are: flag, inner, kind, many, maybe, rate"),
        ({}, "outer.rate is missing; give it a value"),
        ({"rate": "fast"}, "outer.rate must be a number, got 'fast'"),
        ({"rate": True}, "outer.rate must be a number, got True"),
        ({"rate": -1}, r"\[outer\] rate must be >= 0, got -1"),
        ({"rate": 1, "kind": "c"}, "outer.kind must be one of a, b; got 'c'"),
        ({"rate": 1, "flag": 1}, "outer.flag must be true or false, got 1"),
        ({"rate": 1, "maybe": 1.5}, "outer.maybe must be a whole number, got 1.5"),
        ({"rate": 1, "many": 3}, "outer.many must be a list, got 3"),
        ({"rate": 1, "many": [{"name": "innner"}]}, r"unknown part innner; did you mean inner\?"),
        (
            {"rate": 1, "inner": {"name": "inner", "size": "x"}},
            "outer.inner.size must be a whole number, got 'x'",
        ),
        ({"rate": 1, "inner": {"size": 2}}, "outer.inner needs a name, one of: inner, outer"),
        (5, "outer must be a table, got 5"),
    ],
)
def test_errors_name_the_value_and_the_cure(table, message):
    with pytest.raises(SpecError, match=message):
        read(Outer, table, "outer", CATALOGUES)


def test_names_of_modules():
    assert choose(PARTS, "toy:blobs", "part.name").__name__ == "blobs"
    for name, message in {
        "nowhere:thing": r"part.name = 'nowhere:thing' cannot be imported \(No module named 'nowhere'\)",
        "toy:thing": "cannot be imported .*; it must be package.module:object",
        "toy:KEY": "is a Key; it must be a function or a class",
        "innner": r"unknown part innner; did you mean inner\?",
    }.items():
        with pytest.raises(SpecError, match=message):
            choose(PARTS, name, "part.name")
    with pytest.raises(SpecError, match="must be the name of a part, got 3"):
        choose(PARTS, 3, "part.name")


def test_a_name_alone_is_a_part():
    assert part(PARTS, "inner", "p", CATALOGUES) == Inner()
    assert convert(Inner(9), Inner, "p", CATALOGUES) == Inner(9)
