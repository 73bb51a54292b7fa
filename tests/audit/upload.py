"""Small audits for tests: a spec of victims, and what the server hears of them."""

from types import SimpleNamespace

from torch import nn

from shoal.audit.examination import examine
from shoal.audit.plan import Options, plan


def corners(shape, classes):
    """A small network with ReLUs."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, classes)
    )


def spec_of(upload="fedavg", dataset="digits", model="sigmoid_cnn", local=(), task=(), **options):
    """The spec of an audit of one upload."""
    table = {"task": {"dataset": dataset, "model": model, **dict(task)}, "local": {"lr": 1.0, **dict(local)}}
    (case,) = plan([upload], table, [], Options(**options))
    return case.spec


def examined(upload="fedavg", effort=(), **given):
    """What an audit of one upload finds."""
    return examine(SimpleNamespace(spec=spec_of(upload, **given)), **dict(effort))
