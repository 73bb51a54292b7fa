from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from shoal.core.errors import SpecError
from shoal.report.page import render, write_report
from shoal.report.runs import read_run

EVIL = "<script>alert(\"x\")</script> & 'co'"
VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Collects tags and text, and sees that what is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        # Names of XML vocabularies look like addresses, but nothing is fetched from them.
        self.links += [v or "" for k, v in attrs if k in ("href", "src", "xlink:href", "action")]
        self.ids += [v or "" for k, v in attrs if k == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data + "\n"


def check(page: str) -> Checker:
    """The laws of every page: whole, self-contained, each figure an XML document, no id twice."""
    checker = Checker(page)
    assert "script" not in checker.tags
    assert "link" not in checker.tags
    assert all(link.startswith(("#", "data:")) for link in checker.links)
    assert len(checker.ids) == len(set(checker.ids))
    assert "url(" not in page.replace("url(#", "")
    for figure in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        ET.fromstring(figure)
    return checker


def test_the_page_of_one_run(make_run):
    text = check(render([make_run(seed=7)], "fedavg on mnist5k")).text
    for told in (
        "fedavg on mnist5k",
        "lenet",
        "5, 2 per round",
        "dirichlet (beta = 0.1)",
        "finished",
        "47.00",
        "ab" * 32,
    ):
        assert told in text
    assert "max 47.00 % at round 4" in text
    assert "Rejected replies" not in text
    assert 'dataset = "mnist5k"' in text


def test_units_of_the_numbers_on_top_are_small(make_run):
    page = render([make_run()], "x")
    assert "40.00 <small>%</small>" in page
    assert "small&gt;" not in page


def test_the_maximum_is_told_with_its_round(make_run):
    run = make_run(summary={"final_accuracy": 0.4, "max_accuracy": 0.1 * 3})
    rounds = [{**row, "accuracy": 0.1 * 3 if row["round"] in (2, 3) else 0.1} for row in run.rounds]
    assert "max 30.00 % at round 2" in check(render([run._replace(rounds=rounds)], "x")).text


def test_an_unfinished_run_shows_what_there_is(make_run):
    text = check(render([make_run(rounds=3, finished=False)], "x")).text
    assert "unfinished: 3 of 4 rounds" in text
    assert "Latest accuracy" in text
    assert "3.00" in text  # kB sent up


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_without_a_single_round(make_run, finished):
    assert "Nothing has been measured yet." in check(render([make_run(rounds=0, finished=False)], "x")).text
    both = [make_run(rounds=0, finished=finished), make_run("b", rounds=0, finished=False)]
    assert "Comparison of 2 runs" in check(render(both, "x")).text


def test_runs_that_say_next_to_nothing(make_run):
    bare = make_run()._replace(spec={}, rounds=[{"round": 1}], summary={})
    check(render([bare], "x"))
    check(render([bare, bare], "x"))


def test_metrics_may_be_null(make_run):
    run = make_run()
    nulls = [{key: value if key == "round" else None for key, value in row.items()} for row in run.rounds]
    summary = dict.fromkeys(run.summary)
    check(render([run._replace(rounds=nulls, summary=summary)], "x"))
    check(render([run._replace(rounds=nulls, summary=summary), run], "x"))


def test_a_regression_is_told_by_its_error(regression):
    text = check(render([regression], "x")).text
    assert "Final MSE" in text
    assert "9.375" in text
    assert "ccuracy" not in text.replace("accuracy_", "")
    text = check(render([regression, regression._replace(label="other")], "x")).text
    assert "Final MSE" in text
    assert "9.375" in text


def test_rejected_replies_are_told_by_reason(make_run):
    run = make_run()
    rounds = [{**row, "rejected": [{"client": 3, "reason": "update is not finite"}]} for row in run.rounds]
    rounds[1]["rejected"].append({"client": 4, "reason": "timed out"})
    text = check(render([run._replace(rounds=rounds)], "x")).text
    for told in (
        "5 replies were rejected",
        "update is not finite",
        "client 3 (4×)",
        "1 to 4",
        "timed out",
    ):
        assert told in text


def test_a_methods_own_metrics_are_drawn(make_run):
    run = make_run()
    rounds = [{**row, "active_share": 0.5} for row in run.rounds]
    assert "Active share" in check(render([run._replace(rounds=rounds)], "x")).text


def test_everything_from_outside_is_escaped(make_run):
    run = make_run(EVIL)
    spec = {**run.spec, "task": {"dataset": EVIL, "model": EVIL}, EVIL: {EVIL: EVIL}, "note": EVIL}
    rounds = [{**row, EVIL: 1.0, "rejected": [{"client": EVIL, "reason": EVIL}]} for row in run.rounds]
    summary = {**run.summary, "weights_sha256": EVIL, EVIL: EVIL}
    run = run._replace(spec=spec, rounds=rounds, summary=summary)
    for runs in ([run], [run, make_run("other")]):
        page = render(runs, EVIL)
        assert "<script" not in page
        assert EVIL in check(page).text


def test_a_comparison_has_means_marks_and_every_run(make_run):
    runs = [make_run("fedavg", seed=s) for s in (0, 1, 2)]
    runs += [make_run("fedqp", seed=s, summary={**runs[s].summary, "final_accuracy": 0.9}) for s in (0, 1, 2)]
    page = render(runs, "Two methods")
    text = check(page).text
    assert "41.00 ± 1.00" in text  # 40, 41, 42
    assert '<td class="best">90.00</td>' in page
    assert "0, 1, 2" in text
    assert page.count("abababababab") == 6
    assert "differ in more than the seed" not in text


def test_a_tie_is_marked(make_run):
    runs = [
        make_run(label, seed=s, summary={"final_accuracy": value + spread * s})
        for label, value, spread in (("a", 0.8, 0.05), ("b", 0.82, 0.0), ("c", 0.1, 0.0))
        for s in (0, 1, 2)
    ]
    page = render(runs, "x")
    assert '<td class="best">85.00 ± 5.00</td>' in page
    assert '<td class="tie">82.00</td>' in page


def test_unfinished_runs_of_a_comparison_are_told(make_run):
    text = check(render([make_run(), make_run(seed=1, rounds=2, finished=False)], "x")).text
    assert "1 of 2" in text
    assert "unfinished: 2 of 4 rounds" in text


def test_runs_of_one_label_that_are_no_repetitions_are_told(make_run):
    other = make_run()
    other = other._replace(spec={**other.spec, "local": {"lr": 0.5}})
    assert (
        "The runs of fedavg differ in more than the seed: local.lr."
        in check(render([make_run(), other], "x")).text
    )


def test_no_run_is_an_error():
    with pytest.raises(SpecError, match="at least one run"):
        render([], "x")


def test_the_same_runs_give_the_same_page(make_run):
    runs = [make_run(label, seed=seed) for label in ("a", "b") for seed in (0, 1)]
    assert render(runs, "x") == render(runs, "x")
    assert render(runs[:1], "x") == render(runs[:1], "x")


def test_the_page_is_the_same_in_another_process(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "spec.toml").write_text('seed = 1\n[method]\nname = "fedavg"\n')
    (folder / "rounds.jsonl").write_text(
        '{"round": 1, "accuracy": 0.5, "b": 1, "a": 2, "rejected": [{"client": 1}]}\n'
    )
    code = (
        "import sys, pathlib; from shoal.report.page import render; from shoal.report.runs import read_run;"
        "sys.stdout.buffer.write(render([read_run(pathlib.Path(sys.argv[1]))], 'x').encode())"
    )
    seeded = {**os.environ, "PYTHONHASHSEED": "1"}
    told = subprocess.run(
        [sys.executable, "-c", code, str(folder)], env=seeded, capture_output=True, check=True
    )
    assert told.stdout.decode() == render([read_run(folder)], "x")


def test_a_report_is_written_whole_or_not_at_all(make_run, tmp_path):
    path = tmp_path / "new" / "report.html"
    write_report([make_run()], path, "x")
    assert path.read_text(encoding="utf-8") == render([make_run()], "x")
    with pytest.raises(SpecError):
        write_report([], path, "y")
    assert path.read_text(encoding="utf-8") == render([make_run()], "x")
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_a_failed_write_leaves_no_draft(make_run, tmp_path, monkeypatch):
    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_report([make_run()], tmp_path / "report.html", "x")
    assert list(tmp_path.iterdir()) == []
