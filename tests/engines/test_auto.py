import pytest

from shoal.core.engine import Work
from shoal.core.key import Key
from shoal.core.types import Cohort
from shoal.engines import auto

COHORT = Cohort((1, 2), {}, 9)


class Clock:
    """Time that passes only when a way takes it."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Way:
    def __init__(self, clock, *seconds):
        self.clock, self.seconds, self.visits, self.closed = clock, list(seconds), 0, 0

    def exchange(self, work, cohort, message, key):
        self.visits += 1
        self.clock.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        yield from ()

    def close(self):
        self.closed += 1


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(auto, "time", made)
    return made


def play(chooser, rounds=10, verb="update"):
    for round in range(rounds):
        list(chooser.exchange(Work(verb, round, 0, {}), COHORT, (), Key.from_seed(0)))


def of(*runners):
    return auto.Auto(runners, lambda clients: [10] * len(clients))


def test_the_faster_way_stays_though_its_start_was_slow(clock):
    first, second = Way(clock, 0.1), Way(clock, 0.4, 0.06)
    chooser = of(first, second)
    play(chooser)
    assert chooser.runner is second
    assert (first.visits, second.visits) == (4, 6)
    play(chooser, 40)
    assert (first.closed, second.closed) == (1, 0)


def test_a_way_that_was_slow_only_at_first_gets_a_second_trial(clock):
    """Clients' memories grow in the first rounds, which the first way pays for."""
    first, second = Way(clock, 0.1, 0.1, 0.1, 0.1, 0.03), Way(clock, 0.06)
    chooser = of(first, second)
    play(chooser, 8)
    assert chooser.runner is second
    play(chooser, 40)
    assert chooser.runner is first
    assert (first.closed, second.closed) == (0, 1)


def test_one_bad_turn_decides_nothing(clock):
    first, second = Way(clock, 0.1), Way(clock, 0.06, 0.3, 0.3, 0.06)
    chooser = of(first, second)
    play(chooser)
    assert chooser.runner is second


def test_the_first_way_stays_unless_another_is_clearly_faster(clock):
    first, second = Way(clock, 0.05), Way(clock, 0.048)  # too little to tell
    chooser = of(first, second)
    play(chooser)
    assert chooser.runner is first
    assert second.closed == 1


def test_short_exchanges_are_not_worth_a_trial(clock):
    first, second = Way(clock, 0.3, 0.015), Way(clock, 0.001)
    chooser = of(first, second)
    play(chooser)
    assert (first.visits, second.visits) == (10, 0)


def test_long_exchanges_decide_after_one_turn_each_that_counts(clock):
    first, second = Way(clock, 9.0), Way(clock, 5.0)
    chooser = of(first, second)
    play(chooser, 5)
    assert (first.visits, second.visits) == (2, 3)
    assert chooser.runner is second


def test_processes_that_come_up_to_speed_slowly_are_waited_for(clock):
    """Processes that are forked from a large one copy memory in their first exchanges."""
    first, second = Way(clock, 2.0), Way(clock, 3.6, 3.7, 2.9, 1.5)
    chooser = of(first, second)
    play(chooser, 6)
    assert chooser.runner is second
    assert (first.visits, second.visits, first.closed) == (2, 4, 1)


def test_not_for_ever(clock):
    first, second = Way(clock, 2.0), Way(clock, 2.2)
    chooser = of(first, second)
    play(chooser, 9)
    assert chooser.runner is first
    assert (first.visits, second.visits, second.closed) == (3, 6, 1)


def test_a_first_turn_that_compiled_something_decides_nothing(clock):
    """It may take seconds, where all that follow take milliseconds."""
    first, second = Way(clock, 9.0, 0.03), Way(clock, 0.06)
    chooser = of(first, second)
    play(chooser, 8)
    assert chooser.runner is first


def test_times_count_for_each_sample(clock):
    """The second way's cohort was ten times as large."""
    first, second = Way(clock, 0.1), Way(clock, 0.4)
    sizes = {0: 10, 1: 100}
    chooser = auto.Auto([first, second], lambda clients: [sizes[chooser.runner is second]])
    play(chooser)
    assert chooser.runner is second


def test_evaluation_is_no_trial(clock):
    first, second = Way(clock, 0.1), Way(clock, 0.01)
    chooser = of(first, second)
    play(chooser, verb="evaluate")
    assert (first.visits, second.visits) == (10, 0)
    chooser.close()
    assert (first.closed, second.closed) == (1, 1)
