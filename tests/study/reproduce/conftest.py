"""How an experiment's jobs are run in tests."""

from dataclasses import replace

import pytest

from shoal.study.jobs import run_jobs, worker_pool
from shoal.study.reproduce import EXPERIMENTS
from shoal.study.reproduce.grid import merged


@pytest.fixture
def run(tmp_path):
    """Runs all jobs, for real."""

    def run(jobs):
        with worker_pool(jobs, tmp_path) as workers:
            return run_jobs(workers, jobs, tmp_path, lambda rounds: None)

    return run


@pytest.fixture
def small():
    """An experiment at quick scale with other specs, seeds, rows, columns or values, to take a second."""

    def small(name, spec, *, rows=(), columns=(), values=None, measure=None, **grid):
        quick = EXPERIMENTS[name].scales["quick"]
        scale = replace(
            quick.scale,
            spec=merged(quick.scale.spec, spec),
            rows=rows or quick.scale.rows,
            columns=columns or quick.scale.columns,
            values=merged(quick.scale.values, values or {}),
            measure=measure or {},
            **grid,
        )
        function = getattr(quick.grid.measure, "func", quick.grid.measure)
        return replace(quick, scale=scale, grid=quick.file.grid(scale, function))

    return small
