"""Who is there in which round, by each kind of arrivals, and what is refused."""

import re

import pytest

from shoal import SpecError
from shoal.arrivals import ARRIVALS
from shoal.catalogues import CATALOGUES
from shoal.config import part
from shoal.core.arrivals import Arrivals
from shoal.spec import from_table, to_table


def arrivals(**table) -> Arrivals:
    return part(CATALOGUES[Arrivals], table, "arrivals", CATALOGUES)


def rounds(kind, clients, count):
    there = kind.timetable(clients)
    return [list(there(round)) for round in range(count)]


def event(round, clients):
    return {"round": round, "clients": clients}


def test_a_list_of_two_phases():
    kind = arrivals(name="list", join=[event(3, "4-7")], leave=[event(3, "0-3")])
    assert rounds(kind, 8, 4) == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2


def test_clients_of_a_list_leave_and_come_back_and_others_are_always_there():
    kind = arrivals(
        name="list", join=[event(2, "0, 3-4"), event(4, "3")], leave=[event(3, "3-4"), event(2, "5")]
    )
    assert rounds(kind, 7, 5) == [[1, 2, 5, 6], [0, 1, 2, 3, 4, 6], [0, 1, 2, 6], *[[0, 1, 2, 3, 6]] * 2]


def test_newcomers_at_a_rate_come_by_id_and_stay_as_long_as_it_says():
    assert rounds(arrivals(name="rate", initial=2, rate=0.5), 4, 7) == [
        *[[0, 1]] * 2,
        *[[0, 1, 2]] * 2,
        *[[0, 1, 2, 3]] * 3,
    ]
    short = arrivals(name="rate", initial=1, rate=1.5, stay=2)
    assert rounds(short, 9, 8) == [[0], [0, 1], [1, 2, 3], [2, 3, 4], [4, 5, 6], [5, 6, 7], [7, 8], [8]]
    exact = arrivals(name="rate", initial=0, rate=0.29).timetable(1000)
    assert len(exact(100)) == 29  # 100 times the nearest double is a little less


def test_a_file_has_a_row_for_each_stay(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("client,name,join,leave\n2,Ann,2,3\n0,Bo,1,2\n2,Ann,5,\n3,Cy, 3 ,\n")
    kind = arrivals(name="csv", path=str(path))
    assert rounds(kind, 5, 5) == [[0, 1, 4], [1, 2, 4], [1, 3, 4], [1, 3, 4], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"join": [event(0, "1")]}, "round must be at least 1, got 0; rounds are counted from 1"),
        ({"join": [event(2, "5-8")]}, "there is no client 8; ids are 0 to 7"),
        ({"join": [event(2, "1;2")]}, "must be ids and ranges such as"),
        ({"join": [event(2, "")]}, "of which '' is neither"),
        ({"join": [event(2, "5-3")]}, "must not fall, got 5-3; write 3-5"),
        ({"join": [event(2, "1"), event(4, "0-2")]}, "client 1 joins in round 4 but is there already, since"),
        ({"leave": [event(2, "1"), event(4, "1")]}, "client 1 leaves in round 4 but has left already"),
        ({"join": [event(2, "1")], "leave": [event(2, "1")]}, "client 1 has two events in round 2"),
        ({"leave": [event(1, "1")]}, "client 1 leaves in round 1, before it was there"),
        ({}, "give join or leave"),
        ({"join": [{"round": 2}]}, "join[0].clients is missing"),
        ({"join": [event(2, 1)]}, "join[0].clients must be a string in quotes, got 1"),
        ({"joins": []}, "did you mean arrivals.join?"),
    ],
)
def test_lists_that_make_no_sense(table, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        arrivals(name="list", **table).timetable(8)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"initial": 9, "rate": 1.0}, "initial = 9 is more than the 8 clients of the partition"),
        ({"initial": -1, "rate": 1.0}, "initial must be at least 0, got -1"),
        ({"initial": 1, "rate": 0.0}, "rate must be > 0, got 0; 0.5 is a newcomer in every second round"),
        ({"initial": 1, "rate": 1.0, "stay": -1}, "stay must be at least 0, got -1"),
        ({"initial": 1}, "arrivals.rate is missing"),
    ],
)
def test_rates_that_make_no_sense(table, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        arrivals(name="rate", **table).timetable(8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,join\n1,2\n", "has no column leave; its first line must name the columns client, join and"),
        ("", "has no column client"),
        ("client,join,leave\n1,2,\n8,1,\n", "line 3: there is no client 8; ids are 0 to 7"),
        ("client,join,leave\n1,0,\n", "line 2: join must be at least 1, got 0"),
        ("client,join,leave\n1,,\n", "line 2: join must be a whole number, got ''"),
        ("client,join,leave\n1,2.5,\n", "line 2: join must be a whole number, got '2.5'"),
        ("client,join,leave\n1,4,4\n", "line 2: client 1 joins in round 4 and leaves in round 4"),
        (
            "client,join,leave\n1,5,\n1,2,7\n",
            "client 1 joins in round 5, during its stay since round 2, which",
        ),
        ("client,join,leave\n1,2,\n1,5,7\n", "during its stay since round 2, which has no end"),
    ],
)
def test_files_that_make_no_sense(text, message, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(text)
    with pytest.raises(SpecError, match=re.escape(message)):
        arrivals(name="csv", path=str(path)).timetable(8)


def test_a_file_that_is_not_there():
    with pytest.raises(SpecError, match=r"path = 'nobody.csv' does not exist"):
        arrivals(name="csv", path="nobody.csv").timetable(8)


@pytest.mark.parametrize(
    "table",
    [
        {"name": "list", "join": [event(3, "1,4-6")], "leave": [event(9, "1")]},
        {"name": "rate", "initial": 3, "rate": 0.25, "stay": 4},
        {"name": "csv", "path": "people.csv"},
    ],
    ids=ARRIVALS,
)
def test_a_spec_describes_it_completely(table):
    spec = from_table({"arrivals": table})
    assert from_table(to_table(spec)) == spec
    assert to_table(spec)["arrivals"].items() >= {"name": table["name"]}.items()
