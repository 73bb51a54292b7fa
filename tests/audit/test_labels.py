import torch
from audit.upload import examined

from shoal.audit.labels import by_bias, by_rows, found_labels


def test_the_bias_gradient_is_negative_at_the_true_class_only():
    assert by_bias(torch.tensor([0.2, -0.5, 0.3])) == [1]  # p - 1[c = y] of p = (.2, .5, .3), y = 1


def test_the_rows_of_the_weight_gradient_have_the_same_signs_for_features_that_are_not_negative():
    gradient = torch.outer(torch.tensor([0.2, -0.5, 0.3]), torch.tensor([1.0, 0.0, 2.0]))
    assert by_rows(gradient) == [1]


def test_several_samples_lower_the_entries_of_their_classes():
    uniform = torch.full((4,), 0.25)
    assert by_bias(uniform - torch.tensor([0.5, 0.0, 0.0, 0.5]), 2) == [0, 3]
    assert by_bias(uniform - torch.tensor([0.0, 0.0, 1.0, 0.0]), 2) == [2, 2]


def test_a_regression_has_no_labels(toy_regression):
    gradient = {"fc.weight": torch.ones(1, 3), "fc.bias": torch.ones(1)}
    assert found_labels(toy_regression, gradient, 1) == {}


def test_all_labels_of_ten_digits_are_found_by_both_rules():
    found = examined(model="mlp", images=10)
    assert found["rules"] == {"bias": 1.0, "rows": 1.0}
    assert found["knows"]["labels"] == 1.0


def test_also_after_several_steps_and_by_rounded_uploads():
    assert examined("fedavg+sign", model="mlp", images=10, steps=4, local={"lr": 0.1})["rules"]["bias"] == 1.0
