import pytest
import torch

from shoal.parts.layer_scores import SCORES, ranked, within_budget

BEFORE, AFTER = torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0])


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        ("cos_over_dim", 24 / 25 / 2),
        ("cos", 24 / 25),
        ("rel_l2", -(2**0.5) / 5),
        ("l1", -1.0),
        ("emd", 0.0),  # the same values in another order
    ],
)
def test_scores_by_hand(score, wanted):
    assert SCORES[score](BEFORE, AFTER) == pytest.approx(wanted)


@pytest.mark.parametrize("score", ["cos", "rel_l2", "l1", "emd"])
def test_a_layer_that_did_not_change_comes_first(score):
    before = {"moved": torch.ones(4), "kept": torch.zeros(3), "turned": -torch.ones(2)}
    after = {"moved": torch.ones(4) * 2, "kept": torch.zeros(3), "turned": torch.ones(2)}
    names = ranked(score, before, after)
    assert names[0] == ("kept" if score != "cos" else "moved")  # a longer vector has the same direction
    assert names[-1] == "turned"


def test_the_literal_score_prefers_small_layers():
    before = {"large": torch.ones(100), "small": torch.ones(2)}
    after = {"large": torch.ones(100), "small": torch.tensor([1.0, 0.9])}
    assert ranked("cos_over_dim", before, after) == ["small", "large"]
    assert ranked("cos", before, after) == ["large", "small"]


def test_a_budget_takes_what_still_fits():
    sizes = {"a": 60, "b": 30, "c": 10}
    assert within_budget(["a", "b", "c"], sizes, 0.4) == ["b", "c"]
    assert within_budget(["c", "b", "a"], sizes, 0.4) == ["c", "b"]
    assert within_budget(["a", "b", "c"], sizes, 1.0) == ["a", "b", "c"]
