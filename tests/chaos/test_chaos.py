"""A little of `make chaos`."""

import numpy as np
from chaos import run as chaos

RNG = np.random.Generator(np.random.Philox(5))


def test_runs_killed_at_random(tmp_path, monkeypatch):
    monkeypatch.setattr(chaos, "METHODS", ("scaffold",))
    assert list(chaos.random_kills(tmp_path, 4, RNG)) == []


def test_a_study_killed_at_random(tmp_path, monkeypatch):
    monkeypatch.setattr(chaos, "STUDIES", (chaos.reproduction,))
    assert list(chaos.studies(tmp_path, 2, RNG)) == []
