"""How an experiment's jobs are played in tests."""

import pytest

from shoal.study.jobs import crew, work


@pytest.fixture
def play(tmp_path):
    """All jobs, for real."""

    def played(jobs):
        with crew(jobs, tmp_path) as workers:
            return work(workers, jobs, tmp_path, lambda rounds: None)

    return played
