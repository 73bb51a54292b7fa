"""A benchmark gives the rows that it should, and leaves nothing behind, however it ends."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.bench import measure as module
from shoal.bench.contestant import CONTESTANTS, exact_exists
from shoal.bench.measure import chart, measure
from shoal.bench.other_frameworks import NEEDED, available
from shoal.bench.usage import Meter, _family, used
from shoal.core.errors import SpecError, StageError

TINY = "bench.tiny:tiny"
KEYS = [
    "workload",
    "peer",
    "client_samples_per_second",
    "seconds_per_round",
    "peak_rss_mb",
    "ratio_to_plain",
]
OWN = ["shoal", "shoal-exact", "plain"] if exact_exists() else ["shoal", "plain"]


def test_a_row_by_hand():
    def turn(seconds, samples):
        return {"seconds": seconds, "rounds": 2, "samples": samples, "peak_rss_mb": seconds}

    ours, plain = (
        [turn(1.0, 600), turn(3.0, 600), turn(2.0, 600)],
        [turn(4.0, 600), turn(6.0, 600), turn(8.0, 600)],
    )
    assert module._row("w", "shoal", ours, plain) == {
        "workload": "w",
        "peer": "shoal",
        "client_samples_per_second": 300.0,
        "seconds_per_round": 1.0,
        "peak_rss_mb": 3.0,
        "ratio_to_plain": 4.0,  # the median of 4, 2 and 4
    }


def below():
    """The processes below this one."""
    return _family() - {str(os.getpid())}


def alive(pids):
    found = []
    for pid in pids:
        status = Path(f"/proc/{pid}/status")
        with suppress(OSError):
            if "State:\tZ" not in status.read_text():
                found.append(pid)
    return found


@pytest.mark.filterwarnings("ignore:while .* was timed")
def test_rows():
    seen, started, before = [], set(), below()

    def watch(*turn):
        seen.append(turn)
        started.update(below() - before)

    rows = measure([TINY], pairs=2, peers=[], watcher=watch)
    assert [list(row) for row in rows] == [KEYS] * len(OWN)
    assert [(row["workload"], row["peer"]) for row in rows] == [(TINY, peer) for peer in OWN]
    assert seen == [(TINY, peer, turn) for turn in range(3) for peer in OWN]
    for row in rows:
        assert row["client_samples_per_second"] > 0
        assert 0 < row["seconds_per_round"] < 5
        assert 50 < row["peak_rss_mb"] < 5000
    assert rows[-1]["ratio_to_plain"] == 1
    assert len(started) > len(OWN)  # the plain loop has a second process
    assert not alive(started)


def test_an_interrupt_leaves_nothing_behind():
    started, before = set(), below()

    def stop(workload, peer, turn):
        started.update(below() - before)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure([TINY], pairs=2, peers=[], watcher=stop)
    assert len(started) >= len(OWN)
    assert not alive(started)


@pytest.mark.parametrize("ended", [False, True], ids=["while it is asked", "before it is asked"])
def test_a_contestant_that_fails_says_why(tmp_path, ended):
    failing = [sys.executable, "-c", "raise SystemExit('it is broken')"]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(
            failing,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        if ended:
            process.wait()
        with pytest.raises(StageError, match=r"plain on mlp ended \(1\): it is broken"):
            module._answer(process, log, "plain on mlp")
        module._swept(process)


def test_bad_requests():
    with pytest.raises(SpecError, match="did you mean mlp"):
        measure(["mlpp"])
    with pytest.raises(SpecError, match="pairs must be at least 1, got 0"):
        measure([TINY], pairs=0)
    with pytest.raises(SpecError, match="unknown peer flour; did you mean flower"):
        measure([TINY], peers=["flour"])


def test_peers(monkeypatch):
    assert set(available()) <= set(NEEDED) <= set(CONTESTANTS)
    monkeypatch.setattr(module, "available", list)
    with pytest.raises(SpecError, match="flower cannot be imported here; install flwr and ray"):
        measure([TINY], peers=["flower"])


def test_a_row_is_made_of_medians_and_ratios_of_neighbours():
    def turns(*seconds):
        return [{"seconds": s, "samples": 100, "rounds": 2, "peak_rss_mb": 10 * s} for s in seconds]

    row = module._row("w", "shoal", turns(1, 2, 30), turns(2, 4, 30))
    assert row["client_samples_per_second"] == 50
    assert row["seconds_per_round"] == 1
    assert row["peak_rss_mb"] == 300
    assert row["ratio_to_plain"] == 2


def shares(*others):
    return [{"others": share, "turn": i} for i, share in enumerate(others)]


def test_only_quiet_turns_count():
    turns = {"shoal": shares(0, 0.3, 0, 0.05, 0), "plain": shares(0, 0, 0.5, 0, 0.1)}
    kept = module._quiet("mlp", turns)
    assert {name: [turn["turn"] for turn in some] for name, some in kept.items()} == {
        "shoal": [0, 3, 4],
        "plain": [0, 3, 4],
    }


def test_a_busy_machine_is_told_of():
    turns = {"shoal": shares(0.2, 0.3, 0), "plain": shares(0.4, 0.5, 0.3)}
    with pytest.warns(UserWarning, match="while mlp was timed, others took 30% of the processors"):
        assert module._quiet("mlp", turns) == turns


def test_use_counts_children():
    before = used()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    time.sleep(0.5)
    with_child = used()
    os.close(writing)
    os.waitpid(child, 0)
    assert with_child.peak_rss_mb > before.peak_rss_mb + 10
    assert with_child.seconds > before.seconds + 0.05


def test_others_are_others():
    meter = Meter()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert 0 <= meter.others() <= 1


def made(**ratios):
    return [{"workload": w, "peer": p, "ratio_to_plain": r} for w, x in ratios.items() for p, r in x.items()]


def test_the_chart(tmp_path):
    figure = chart(made(mlp={"shoal": 0.8, "plain": 1.0}, cnn={"shoal": 0.9, "plain": 1.0}))
    (axes,) = figure.axes
    assert axes.get_xscale() == "linear"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mlp", "cnn"]
    assert [text.get_text() for text in axes.texts] == ["0.80", "0.90"]
    figure.savefig(tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_a_chart_of_very_unlike_speeds_is_on_a_log_scale():
    figure = chart(made(mlp={"shoal": 2.0, "plain": 1.0, "flower": 0.01, "pfl": 0.4, "another": 0.5}))
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    low, high = axes.get_xlim()
    assert low < 0.01
    assert high > 2


def test_nothing_to_draw():
    with pytest.raises(SpecError, match="nothing to draw"):
        chart(made(mlp={"plain": 1.0}))


def test_the_legend_of_the_chart_is_beside_the_bars():
    rows = [{"workload": "mlp", "peer": peer, "ratio_to_plain": 2.0} for peer in ("shoal", "shoal-exact")]
    figure = chart(rows)
    figure.draw_without_rendering()
    (legend,), (axes,) = figure.legends, figure.axes
    assert not legend.get_window_extent().overlaps(axes.bbox)
