"""Training of FedGen's generator: a small network between noise and the last layers of the clients' models.

    hidden = relu(BatchNorm(W1 [noise, class] + b1))    z = W2 hidden + b2    outputs_i = H_i z + h_i

All steps of a round are one call: in torch, most of the millisecond per step is the overhead of about forty
operations on small matrices. Matrix products use BLAS.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int64

from shoal.kernels.jit import given, inner, kernel

EPSILON, KEEP = np.float32(1e-5), np.float32(0.9)  # torch's defaults for BatchNorm
_ZERO, _ONE = np.float32(0), np.float32(1)


@inner
def _normalised(
    hidden: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """BatchNorm of hidden + bias without scale and shift, in place, and 1 / the standard deviations.

    Updates the running statistics.
    """
    n, wide = hidden.shape
    middle, square, root = np.zeros(wide), np.zeros(wide), np.empty(wide, np.float32)
    for b in range(n):
        row = hidden[b]
        for i in range(wide):
            row[i] += bias[i]
            middle[i] += row[i]
    for i in range(wide):
        middle[i] /= n
    for b in range(n):
        row = hidden[b]
        for i in range(wide):
            gap = row[i] - middle[i]
            square[i] += gap * gap
    for i in range(wide):
        root[i] = 1 / math.sqrt(square[i] / n + EPSILON)
        mean[i] = KEEP * mean[i] + (_ONE - KEEP) * np.float32(middle[i])
        var[i] = KEEP * var[i] + (_ONE - KEEP) * np.float32(square[i] / max(n - 1, 1))
    for b in range(n):
        row = hidden[b]
        for i in range(wide):
            row[i] = np.float32(row[i] - middle[i]) * root[i]
    return hidden, root


@inner
def _plus(matrix: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Add the bias to every row, in place."""
    for b in range(len(matrix)):
        row = matrix[b]
        for i in range(row.size):
            row[i] += bias[i]
    return matrix


@inner
def _sums(matrix: np.ndarray, out: np.ndarray) -> None:
    """Write the sums of the columns to `out`."""
    for i in range(out.size):
        out[i] = _ZERO
    for b in range(len(matrix)):
        row = matrix[b]
        for i in range(out.size):
            out[i] += row[i]


@inner
def _rows(matrix: np.ndarray, out: np.ndarray) -> None:
    """Copy all rows to `out`, one after another."""
    at, wide = 0, matrix.shape[1]
    for b in range(len(matrix)):
        row = matrix[b]
        for i in range(wide):
            out[at + i] = row[i]
        at += wide


@inner
def _through_norm(
    slopes: np.ndarray, normal: np.ndarray, root: np.ndarray, scale: np.ndarray, along: np.ndarray
) -> np.ndarray:
    """The gradients before BatchNorm from those after it, in place; `along` receives those of its scale."""
    n, wide = slopes.shape
    total = np.zeros(wide, np.float32)
    for i in range(wide):
        along[i] = _ZERO
    for b in range(n):
        row, place = slopes[b], normal[b]
        for i in range(wide):
            total[i] += row[i]
            along[i] += row[i] * place[i]
    share = _ONE / np.float32(n)
    for b in range(n):
        row, place = slopes[b], normal[b]
        for i in range(wide):
            row[i] = scale[i] * root[i] * (row[i] - share * total[i] - share * place[i] * along[i])
    return slopes


@inner
def _teachers(outputs: np.ndarray, y: np.ndarray, shares: np.ndarray) -> tuple[float, np.ndarray]:
    """sum_i mean_b share[i, y_b] CE(outputs_i, y_b); its gradients overwrite the outputs."""
    clients, classes = shares.shape
    n, total = len(y), 0.0
    for b in range(n):
        for client in range(clients):
            row = outputs[b, client * classes : (client + 1) * classes]
            share = shares[client, y[b]]
            top, whole, own = row[0], _ZERO, row[y[b]]
            for c in range(1, classes):
                top = max(top, row[c])
            for c in range(classes):
                row[c] = math.exp(row[c] - top)
                whole += row[c]
            total += share * (math.log(np.float64(whole)) + (np.float64(top) - np.float64(own)))
            factor = share / np.float32(n)
            for c in range(classes):
                row[c] = factor * (row[c] / whole - (_ONE if c == y[b] else _ZERO))
    return total / n, outputs


@inner
def _diversity(z: np.ndarray, noise: np.ndarray, eta: float, slopes: np.ndarray) -> float:
    """exp(-mean_{b,c} mean |eps_b - eps_c|^2 mean |z_b - z_c|); adds eta times its gradients."""
    n, wide = z.shape
    total = 0.0
    pull, gaps = np.zeros((n, wide), np.float32), np.empty(wide, np.float32)
    for b in range(n):
        for c in range(b):
            apart = _ZERO
            for i in range(noise.shape[1]):
                gap = noise[b, i] - noise[c, i]
                apart += gap * gap
            weight = np.float32(2) * apart / np.float32(noise.shape[1])  # every pair counts twice
            left, right, up, down = z[b], z[c], pull[b], pull[c]
            for i in range(wide):
                gap = left[i] - right[i]
                side = weight if gap > _ZERO else (-weight if gap < _ZERO else _ZERO)
                gaps[i] = gap * side
                up[i] -= side
                down[i] += side
            for i in range(wide):
                total -= gaps[i]
    value = math.exp(total / (n * n * wide))
    factor = np.float32(eta * value / (n * n * wide))
    for b in range(n):
        for i in range(wide):
            slopes[b, i] += factor * pull[b, i]
    return value


@inner
def _adam(
    params: np.ndarray, first: np.ndarray, second: np.ndarray, gradient: np.ndarray, step: int, lr: float,
    decay: float,
) -> None:  # fmt: skip
    """One step of Adam with its usual constants."""
    rate = np.float32(lr / (1 - 0.9**step))
    root = np.float32(1 / math.sqrt(1 - 0.999**step))
    less, old, new = np.float32(decay), np.float32(0.9), np.float32(0.1)
    aged, fresh, tiny = np.float32(0.999), np.float32(0.001), np.float32(1e-8)
    for p in range(params.size):
        slope = gradient[p] + less * params[p]
        first[p] = old * first[p] + new * slope
        second[p] = aged * second[p] + fresh * slope * slope
        params[p] -= rate * first[p] / (np.sqrt(second[p]) * root + tiny)


_SIGNATURE = float64[:, ::1](
    float32[::1], float32[::1], float32[::1], int64,  # params, Adam's first and second moment, its steps
    float32[::1], float32[::1],  # running mean and variance
    given(float32, 3), int64, given(int64, 2),  # inputs, how many of them are noise, classes
    given(float32, 2), given(float32, 1), given(float32, 2),  # heads, their biases, shares
    float64, float64, float64,  # eta, lr, decay
)  # fmt: skip


@kernel(_SIGNATURE)
def train(
    params: np.ndarray, first: np.ndarray, second: np.ndarray, done: int, mean: np.ndarray, var: np.ndarray,
    inputs: np.ndarray, noise: int, classes: np.ndarray, heads: np.ndarray, biases: np.ndarray,
    shares: np.ndarray, eta: float, lr: float, decay: float,
) -> np.ndarray:  # fmt: skip
    """Train in place. Returns [steps, 2]: the teachers' loss and the diversity loss before each step.

    Args:
        params: [P], laid out W1 [hidden, inputs], b1, W2 [width, hidden], b2, BatchNorm's scale and shift.
        first: [P], Adam's first moment.
        second: [P], Adam's second moment.
        done: The number of steps that Adam has already made.
        mean: [hidden], BatchNorm's running mean.
        var: [hidden], its running variance.
        inputs: [steps, n, inputs], noise and the one-hot class.
        noise: The number of inputs that are noise; they come first.
        classes: [steps, n], the class of each sample.
        heads: [clients * K, width], the clients' last layers, concatenated.
        biases: [clients * K], their biases.
        shares: [clients, K], the weight of each client in each class.
        eta: Weight of the diversity loss.
        lr: Adam's learning rate.
        decay: Weight decay.
    """
    hidden, n, wide_in, width = mean.size, inputs.shape[1], inputs.shape[2], heads.shape[1]
    ends = np.array([hidden * wide_in, hidden, width * hidden, width, hidden, hidden])
    for i in range(1, ends.size):
        ends[i] += ends[i - 1]
    if params.size != ends[-1] or first.size != params.size or second.size != params.size:
        raise ValueError("parameters and Adam's moments do not fit the network")
    if var.size != hidden or not 0 < noise <= wide_in:
        raise ValueError("running values and noise do not fit the network")
    if heads.shape[0] != shares.size or biases.size != shares.size:
        raise ValueError("every client has a last layer, a bias and a share for each class")
    steps = inputs.shape[0]
    if classes.shape != (steps, n):
        raise ValueError("every sample has a class")
    for step in range(steps):
        for y in classes[step]:
            if not 0 <= y < shares.shape[1]:
                raise ValueError("there is no such class")
    w1, b1 = params[: ends[0]].reshape(hidden, wide_in), params[ends[0] : ends[1]]
    w2, b2 = params[ends[1] : ends[2]].reshape(width, hidden), params[ends[2] : ends[3]]
    scale, move = params[ends[3] : ends[4]], params[ends[4] :]
    gradient = np.empty(params.size, np.float32)
    losses = np.empty((steps, 2))
    for step in range(steps):
        x = inputs[step]
        normal, root = _normalised(np.dot(x, w1.T), b1, mean, var)
        active = np.empty((n, hidden), np.float32)
        for b in range(n):
            for i in range(hidden):
                value = scale[i] * normal[b, i] + move[i]
                active[b, i] = _ZERO if value <= _ZERO else value
        z = _plus(np.dot(active, w2.T), b2)
        losses[step, 0], slopes = _teachers(_plus(np.dot(z, heads.T), biases), classes[step], shares)
        dz = np.dot(slopes, heads)
        losses[step, 1] = _diversity(z, x[:, :noise], eta, dz)
        dactive = np.dot(dz, w2)
        for b in range(n):
            for i in range(hidden):
                if active[b, i] <= _ZERO:
                    dactive[b, i] = _ZERO
        _rows(np.dot(dz.T, active), gradient[ends[1] : ends[2]])
        _sums(dz, gradient[ends[2] : ends[3]])
        _sums(dactive, gradient[ends[4] :])
        dx = _through_norm(dactive, normal, root, scale, gradient[ends[3] : ends[4]])
        _rows(np.dot(dx.T, x), gradient[: ends[0]])
        _sums(dx, gradient[ends[0] : ends[1]])
        _adam(params, first, second, gradient, done + step + 1, lr, decay)
    return losses
