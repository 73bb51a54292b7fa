"""The arena: every defence against every attack, and without an attack; each pair is a separate run.

A defence is a method. If it takes the expected number of attackers, it gets the true number. The oracle is
uniform FedAvg over the honest clients alone, which no attack changes: one run per seed, and the reference for
all others. Accuracies are means over ten rounds, the last ones and those up to some earlier rounds, since
some defences break down late. A defence that is poor without an attack is marked as poor, however much of its
accuracy it keeps under one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.aggregators.aggregator import Aggregator
from shoal.catalogues import METHOD
from shoal.config import Table, arguments, choose
from shoal.core.attack import USUAL
from shoal.core.errors import SpecError
from shoal.overrides import with_method, with_settings
from shoal.report.table import Stat, over_seeds
from shoal.runs.build import as_method
from shoal.runs.files import is_free
from shoal.runs.result import Result
from shoal.selectors.uniform import All
from shoal.spec import Spec, from_table
from shoal.study.compare import check_seeds, file_name, split
from shoal.study.jobs import Job, kept_answers, run_with_progress
from shoal.study.robustness import accuracy_summary, degradation, detection, quotient, tolerance

CLEAN = "clean"  # in place of an attack's name: no attack
ORACLE = "oracle"  # in place of a defence's name
UNIFORM = "fedavg:weights=uniform"  # the method of the oracle
DEFENCES = (
    *(ORACLE, UNIFORM, "fedavg", "dsvd", "qfedavg", "fedcpa", "fedsvd", "krum", "multikrum"),
    *("median", "trimmed_mean", "geomedian", "normclip", "fltrust"),
)
ORACLE_ATTACK = "garbage"  # the attack whose replies are all rejected, so that only honest clients remain
LAST = 10  # an accuracy is the mean over this many rounds
READ_AT = (15, 30, 60)  # rounds at which accuracies are also read
POOR = 0.95  # a defence with less than this share of the oracle's clean accuracy is poor
ATTACKER_FIELDS = ("attack.fraction=", "attack.attackers=")  # fields that select the attackers
ATTACKERS_EXPECTED = ("f", "trim")  # fields of defences: the expected attackers, as a number or a share

QUICK: Table = {  # the setting if no spec is given
    "rounds": 60,
    "local": {"epochs": 1},
    "partition": {"kind": "dirichlet", "clients": 20, "beta": 0.5},
    "selector": "all",
    "attack": {"fraction": 0.3},
    "evaluate": {"clients": 0, "metrics": ["accuracy"]},
    "checkpoint": {"every": 0},  # a run takes seconds
}

RUNS = "runs"
MEASURES = (
    "average",
    "maximum",
    "spread",
    "rounds_to_max",
    "seconds_to_max",
    "convergence_round",
    "converged",
)


class Match(NamedTuple):
    """The run of a defence against an attack, with one seed."""

    defence: str
    attack: str
    job: Job


def plan(
    defences: Sequence[str],
    attacks: Sequence[str],
    table: Table,
    settings: Sequence[str],
    seeds: Sequence[int],
) -> list[Match]:
    """All matches, checked before the first one starts.

    A name may carry fields: `krum:f=2` or `ipm:epsilon=100`.
    """
    for kind, names in (("defence", defences), ("attack", attacks)):
        if not names or len(set(names)) < len(names):
            raise SpecError(f"every {kind} must be named once, got {','.join(names) or 'none'}")
    check_seeds(seeds, settings)
    table = with_settings(table, settings)
    common = {name: value for name, value in table.pop("attack", {}).items() if name != "name"}
    matches = []
    for defence in defences:
        for attack in (CLEAN, *attacks):
            label, met = (UNIFORM, _oracle_meets(attack)) if defence == ORACLE else (defence, attack)
            attacked = with_attack(table, met, common)
            both = with_defence(attacked, label, _expected(attacked.get("attack", common), attacked))
            for seed in seeds:
                spec = from_table({**both, "seed": seed})
                _check(spec)
                name = f"{file_name(label)}-{file_name(met)}-seed{seed}"
                matches.append(Match(defence, attack, Job(name, spec, measure)))
    return matches


def _oracle_meets(attack: str) -> str:
    """The attack that the oracle's runs have: the same attackers, whose replies are all rejected."""
    if attack == CLEAN:
        return CLEAN
    _, fields = split(attack, "attack")
    who = [field.removeprefix("attack.") for field in fields if field.startswith(ATTACKER_FIELDS)]
    return f"{ORACLE_ATTACK}:{','.join(who)}" if who else ORACLE_ATTACK


def _expected(attack: Mapping[str, Any], table: Table) -> float:
    """The expected attackers as a share of the clients, or as a number if the population is unknown."""
    clients = table.get("partition", {}).get("clients")
    if "attackers" in attack:
        return len(attack["attackers"]) / (clients or 1)
    fraction = float(attack.get("fraction", USUAL))
    return round(fraction * clients) / clients if clients else fraction


def _check(spec: Spec) -> None:
    """Refuse an aggregation rule that cannot handle cohorts of this size."""
    rule, clients = getattr(as_method(spec.method), "aggregator", None), getattr(spec.partition, "clients", 0)
    if isinstance(rule, Aggregator) and isinstance(spec.selector, All) and clients:
        rule.check_cohort(clients)


def with_defence(table: Table, label: str, attackers: float) -> Table:
    """The table with a defence, which gets the expected attackers if it has a field for them."""
    name, fields = split(label, "method")
    known = arguments(choose(METHOD, name, "method.name"))
    expected = [f"method.{field}={attackers}" for field in ATTACKERS_EXPECTED if field in known]
    return with_settings(with_method(table, name), [*expected, *fields])


def with_attack(table: Table, label: str, common: Table) -> Table:
    """The table with an attack, or unchanged for `CLEAN`; `common` holds fields shared by all attacks.

    A list of attackers replaces the common fraction.
    """
    if label == CLEAN:
        return table
    name, fields = split(label, "attack")
    if "attackers" in common or any(field.startswith("attack.attackers=") for field in fields):
        common = {name: value for name, value in common.items() if name != "fraction"}
    return with_settings({**table, "attack": {"name": name, **common}}, fields)


def measure(result: Result) -> dict[str, Any]:
    """The accuracies of a match, the success of the attack, and the weights of the attackers."""
    found = accuracy_summary(result.records)
    if found is None:
        raise SpecError("the arena compares accuracies, and this task has none; take one with classes")
    weights, shares = (
        [r[name] for r in result.records if r.get("attackers") and name in r]
        for name in ("attackers_weight", "attackers_step_share")
    )
    return {
        **found._asdict(),
        "settled": mean_of_last_rounds(result.records, len(result.records)),
        "read_at": {str(last): mean_of_last_rounds(result.records, last) for last in READ_AT},
        "attackers_step_share": max(map(abs, shares[-LAST:])) if shares else None,
        "attackers_share": result.summary.get("attackers_share", 0.0),
        "attack_success": result.summary.get("attack_success"),
        "attackers_weight": sum(weights) / len(weights) if weights else None,
        "detection": detection(result.records),
    }


def mean_of_last_rounds(records: Sequence[Mapping[str, Any]], last: int) -> float | None:
    """The mean accuracy of the ten rounds up to `last`; None if it was never reached or evaluated."""
    if last > len(records):
        return None
    stat = over_seeds([record.get("accuracy") for record in records[max(0, last - LAST) : last]])
    return None if stat is None else stat.mean


def run_matches(matches: Sequence[Match], out: Path) -> dict[str, Any]:
    """The answers of all matches: those in the folder are kept, the others are run on all cores."""
    if not (out / RUNS).is_dir() and not is_free(out):
        raise SpecError(f"{out} holds something else than an arena; choose another --out")
    jobs = list({match.job.name: match.job for match in matches}.values())  # matches share the oracle's jobs
    answers = kept_answers(jobs, out / RUNS)
    missing = [job for job in jobs if job.name not in answers]
    return answers | run_with_progress("arena", missing, out / RUNS) if missing else answers


def cells(matches: Sequence[Match], answers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One cell per defence and attack, in the order of the matches, with its results over the seeds."""
    seeds: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for match in matches:
        seeds.setdefault((match.defence, match.attack), []).append(answers[match.job.name])
    return [
        _cell(
            defence,
            attack,
            runs,
            seeds[defence, CLEAN],
            seeds.get((ORACLE, attack)),
            seeds.get((ORACLE, CLEAN)),
        )
        for (defence, attack), runs in seeds.items()
    ]


Answers = Sequence[Mapping[str, Any]]  # one per seed


def _cell(
    defence: str, attack: str, runs: Answers, clean: Answers, oracle: Answers | None, ideal: Answers | None
) -> dict[str, Any]:
    def mean(name: str) -> float | None:
        stat = over_seeds([run[name] for run in runs])
        return None if stat is None else stat.mean

    hit = attack != CLEAN
    accuracy, before = _over(runs), _over(clean)
    ratios = [run["settled"] / best["settled"] for run, best in zip(runs, oracle or (), strict=bool(oracle))]
    ratio = over_seeds(ratios)
    return {
        "defence": defence,
        "attack": attack,
        "accuracy": accuracy.mean,
        "std": accuracy.std,
        "interval": interval(accuracy.std, len(runs)),
        "worst": min(run["settled"] for run in runs),
        "read_at": {last: _at(runs, last) for last in map(str, READ_AT)},
        "of_oracle": None if ratio is None else ratio.mean,
        "worst_of_oracle": min(ratios, default=None),
        "clean_accuracy": before.mean,
        "poor": ideal is not None and before.mean < POOR * _over(ideal).mean,
        "tolerance": tolerance(before.mean, accuracy.mean) if hit else None,
        "degradation": degradation(before.mean, accuracy.mean) if hit else None,
        "robustness_quotient": quotient(accuracy.mean, mean("attackers_share") or 0.0) if hit else None,
        "attack_success": mean("attack_success"),
        "attackers_weight": mean("attackers_weight"),
        "attackers_step_share": mean("attackers_step_share"),
        "detection": mean("detection"),
        **{name: mean(name) for name in MEASURES},
    }


def _at(runs: Answers, last: str) -> float | None:
    found = over_seeds([run["read_at"][last] for run in runs])
    return None if found is None else found.mean


def _over(runs: Answers) -> Stat:
    found = over_seeds([run["settled"] for run in runs])
    assert found is not None
    return found


def interval(std: float, seeds: int) -> float | None:
    """Half the width of the 95 % confidence interval of a mean, by Student's t; None for one seed."""
    if seeds < 2:
        return None
    from scipy.stats import t as student  # slow to import

    return float(student.ppf(0.975, seeds - 1)) * std / math.sqrt(seeds)


def names(text: str) -> list[str]:
    """The names of a comma-separated list; fields of a name may contain lists with commas."""
    commas = r",(?!\s*[A-Za-z_][\w.]*=)(?![^\[]*\])"
    return [name.strip() for name in re.split(commas, text) if name.strip()]
