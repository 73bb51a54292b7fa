"""Faults are as frequent as they should be, and cost a reply and nothing else."""

import pytest
from toy import KEY, play, setup

from shoal import SpecError
from shoal.core.serialization import to_bytes
from shoal.loop import advance, start
from shoal.round_faults import DROPOUTS, LATE, FaultRates
from shoal.run_settings import Faults
from shoal.runs.runner import one_thread


def drawn(rates, count=4000):
    return [rates._drawn(KEY.fold("client", i).numpy()) for i in range(count)]


def test_faults_are_as_frequent_as_they_should_be():
    found = drawn(FaultRates(0.3, "any", 0.2, 0.1))
    dropouts = [fault for fault in found if fault in DROPOUTS]
    assert len(dropouts) / 4000 == pytest.approx(0.3, abs=0.02)
    for stage in DROPOUTS:
        assert dropouts.count(stage) / 4000 == pytest.approx(0.1, abs=0.015)
    assert found.count("late") / 4000 == pytest.approx(0.7 * 0.2, abs=0.02)  # of those that are still there
    assert found.count("corrupt") / 4000 == pytest.approx(0.7 * 0.8 * 0.1, abs=0.015)


def round_with(**faults):
    made = setup("scaffold", faults=faults, selector="all")
    with one_thread():
        return advance(made.federation, start(made.federation))


@pytest.mark.parametrize(
    ("stage", "down", "up"), [("download", 0, 0), ("training", 1, 0), ("upload", 1, 1), ("any", None, None)]
)
def test_how_far_a_client_gets_decides_which_bytes_count(stage, down, up):
    _, whole = round_with()
    progress, done = round_with(dropout=1.0, dropout_stage=stage)
    if down is not None:
        assert (done.bytes_down, done.bytes_up) == (down * whole.bytes_down, up * whole.bytes_up)
        assert {reason for _, reason in done.rejected} == {DROPOUTS[stage][0]}
    assert len(done.rejected) == 8
    assert progress.accepted == {}  # nobody's memory counts


def test_late_replies_are_refused_as_such():
    progress, done = round_with(late=1.0)
    assert {reason for _, reason in done.rejected} == {LATE}
    assert progress.accepted == {}


def test_damaged_replies_are_found_by_the_reader_or_by_the_gate():
    _, done = round_with(corrupt=1.0)
    assert len(done.rejected) == 8
    assert any("its reply arrived damaged" in reason for _, reason in done.rejected)
    assert any("damaged" not in reason for _, reason in done.rejected)


def test_without_faults_nothing_changes():
    assert to_bytes(play(setup()).state) == to_bytes(play(setup(faults={"dropout": 0.0})).state)


@pytest.mark.parametrize("name", ["dropout", "late", "corrupt"])
def test_a_rate_is_a_probability(name):
    with pytest.raises(SpecError, match=rf"{name} must be a probability in \[0, 1\], got 2"):
        Faults(**{name: 2.0})
