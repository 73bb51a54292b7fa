"""Losses are not nothing: what a server learns of a client that answers questions about a linear model.

The summed squared error is a quadratic in the p + 1 parameters theta, theta' A theta - 2 b' theta + c with
A = X'X, b = X'y, c = y'y, where X has a column of ones. It has (p + 1)(p + 2) / 2 + p + 2 coefficients, and
as many answers give them all away.
"""

import numpy as np
import pytest
import torch
from toy import KEY, setup

from shoal.loop import advance, start
from shoal.parts.swarm import SwarmMessage
from shoal.privacy.gaussian import GaussianNoise

TASK = {"dataset": "boston", "model": "linear"}


def federation(clients, privacy=None, **fields):
    axes = {} if privacy is None else {"privacy": privacy}
    partition = {"kind": "iid", "clients": clients}
    return setup({"name": "fsi", **fields}, task=TASK, partition=partition, selector="all", **axes)


def answers(made, client, points, privacy=None):
    """What the client returns for the columns of points [p + 1, questions]."""
    data = made.side.data.train(client, None, KEY, full=False)
    message = SwarmMessage(torch.from_numpy(points[:, None]), ())
    _, reply = made.federation.method.client_update(made.federation.task, (), message, data, None)
    reply = reply if privacy is None else privacy.protect(reply, KEY)
    return reply.payload.losses[0].numpy()


def truth(made, client):
    x, y = made.side.data.train(client, None, KEY, full=False).all
    return np.c_[x.double().numpy(), np.ones(len(x))], y.double().numpy()


def questions(size):
    """0, e_i, -e_i, and e_i + e_j for i < j: 1 + 2 d + d (d - 1) / 2 points."""
    one = np.eye(size)
    pairs = [one[i] + one[j] for i in range(size) for j in range(i)]
    return np.stack([np.zeros(size), *one, *-one, *pairs], 1)


def revealed(told, size):
    """A and b, by adding and subtracting answers."""
    c, plus, minus, pairs = told[0], told[1 : size + 1], told[size + 1 : 2 * size + 1], told[2 * size + 1 :]
    b = (minus - plus) / 4
    a = np.diag((plus + minus) / 2 - c)
    both = [(i, j) for i in range(size) for j in range(i)]
    for (i, j), answer in zip(both, pairs, strict=True):
        a[i, j] = a[j, i] = (answer - c - a[i, i] - a[j, j]) / 2 + b[i] + b[j]
    return a, b


def error(found, true):
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def test_as_many_answers_as_coefficients_give_all_sums_away():
    made, p = federation(4), 13
    points = questions(p + 1)
    assert points.shape[1] == (p + 1) * (p + 2) // 2 + p + 2 == 120
    a, b = revealed(answers(made, 2, points), p + 1)
    x, y = truth(made, 2)
    assert error(a, x.T @ x) < 1e-6
    assert error(b, x.T @ y) < 1e-6
    np.testing.assert_allclose(a, x.T @ x, rtol=1e-6, atol=1e-6)
    theta = np.linalg.solve(a, b)  # the client's own regression, which it never sent
    np.testing.assert_allclose(theta, np.linalg.lstsq(x, y)[0], rtol=1e-4)


def test_a_server_that_only_runs_the_method_learns_them_too():
    """The candidates of an ordinary run, with the paper's settings, are as good as questions."""
    fields = {"particles": 30, "alpha": 100.0, "patience": 5, "initial_range": 1.0, "epochs": 1}
    made = federation(4, **fields)
    progress, sent = start(made.federation), []
    for _ in range(10):
        sent.append(progress.state.candidates[:, 0].numpy())
        progress, _ = advance(made.federation, progress)
    points = np.concatenate(sent, 1)
    told = answers(made, 1, points)
    rows, columns = np.triu_indices(14)
    features = np.c_[(points[rows] * points[columns]).T, points.T, np.ones(points.shape[1])]
    scale = np.abs(features).max(0)
    found = np.linalg.lstsq(features / scale, told)[0] / scale
    x, y = truth(made, 1)
    expected = (x.T @ x)[rows, columns] * np.where(rows == columns, 1, 2)
    assert error(found[: len(rows)], expected) < 1e-6
    assert error(found[len(rows) : -1], -2 * x.T @ y) < 1e-6


def test_one_sample_is_read_off_and_two_are_solved_for():
    """The row of the ones holds the sum of the samples; with two, A tells their difference as well."""
    alone = federation(404)
    a, b = revealed(answers(alone, 7, questions(14)), 14)
    x, y = truth(alone, 7)
    np.testing.assert_allclose(a[-1], x[0], rtol=1e-6, atol=1e-7)
    assert b[-1] == pytest.approx(y[0], rel=1e-6)
    pair = federation(202)
    a, _ = revealed(answers(pair, 7, questions(14)), 14)
    apart = 2 * a - np.outer(a[-1], a[-1])  # (x1 - x2)(x1 - x2)'
    widest = int(np.argmax(np.diag(apart)))
    difference = apart[widest] / np.sqrt(apart[widest, widest])
    found = np.stack([(a[-1] + difference) / 2, (a[-1] - difference) / 2])
    x, _ = truth(pair, 7)
    x = x if error(found, x) < error(found, x[::-1]) else x[::-1]
    np.testing.assert_allclose(found, x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("noise", [1.0, 100.0])
def test_noise_on_the_losses_blurs_what_single_answers_reveal(noise):
    made = federation(404)
    a, _ = revealed(answers(made, 7, questions(14), GaussianNoise(noise=noise)), 14)
    x, _ = truth(made, 7)
    off = np.abs(a[-1] - x[0])
    assert 0.3 * noise < np.sqrt(np.mean(off**2)) < 5 * noise
    assert off[3:6].min() > 0.01 * noise  # features of size 1 drown


def test_small_clients_may_stay_silent():
    made = federation(50, privacy={"name": "gaussian", "noise": 0.0, "min_samples": 9})
    silent = [client for client in range(50) if made.shards.count(client) < 9]
    assert silent
    assert not set(silent) & set(made.federation.engine.clients(0))
