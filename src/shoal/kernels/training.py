"""Local training in compiled kernels: many clients per call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from shoal.kernels.plan import CROSS_ENTROPY, SQUARED_ERROR, DensePlan, Plan, dense_part
from shoal.kernels.progress import new_progress, ready
from shoal.kernels.training_loop import Clients


class ExtraFeatures(NamedTuple):
    """Additional features for the last layer. See `training_job`."""

    features: np.ndarray  # [F, width] float32: for each step one per sample, then additional ones
    classes: np.ndarray  # [F] int64
    ptr: np.ndarray  # [S + 1] int64: where the features of each step start
    learned: np.ndarray  # [classes] bool: samples of other classes do not count in the term of g_b
    g_a: float
    g_b: float


class DropoutKeys(NamedTuple):
    """Where the random numbers of dropout come from: `Key(words).fold(step, name)`."""

    words: np.ndarray  # [C, 2] uint64: the clients' keys
    names: np.ndarray  # [hidden layers] uint64: the word of each layer's name


class Rounding(NamedTuple):
    """The number formats of clients' weights, gradients and momentum. See `training_job`."""

    forms: np.ndarray  # [C, 2] int64: `digits` and `least` of each client's `NumberFormat`
    largest: np.ndarray  # [C] float32
    random: bool  # whether weights and momentum are rounded at random; gradients never are
    words: np.ndarray  # [C, 2] uint64: each client's key for random rounding


NO_ROUNDING = Rounding(
    np.empty((0, 2), np.int64), np.empty(0, np.float32), False, np.empty((0, 2), np.uint64)
)
_NO_FEATURES = ExtraFeatures(
    np.empty((0, 0), np.float32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_), 0, 0
)
_NO_LABELS, _NO_TARGETS = np.empty(0, np.int64), np.empty(0, np.float32)

Rows = np.ndarray | Sequence[np.ndarray]  # [C, P] float32, or C arrays [P]


class ControlRows(NamedTuple):
    """Control variates after training. See `training_job`."""

    own: Rows  # C rows, receive `less - shift` minus the change of the parameters divided by `reach`
    reach: np.ndarray  # [C] float32: the learning rate times the number of plain steps that move equally far


class Pulls(NamedTuple):
    """Pulls of constant strength towards another model. See `training_job`."""

    centre: Rows  # C rows or one
    mask: Rows  # C rows or one; none if only the first strengths are used
    strengths: np.ndarray  # [C, 2] float32: of the pull on all numbers, and of the pull through the mask
    ptr: np.ndarray  # [parts + 1] int64: where each part of the parameters starts
    scales: np.ndarray  # [parts] float32: the weight of each part
    tiny: float  # added to squared distances


NO_PULLS = Pulls((), (), np.empty((0, 2), np.float32), np.empty(0, np.int64), np.empty(0, np.float32), 0.0)
NO_CONTROLS = ControlRows((), np.empty(0, np.float32))

Kernel = Callable[[int, int, Clients], int]


class TrainingJob:
    """The training of some clients. Any number of threads may work on it at the same time.

    Clients are taken in order. A client's result does not depend on the thread that trains it.
    """

    def __init__(self, kernel: Kernel, clients: Clients, batch: int, rows: Sequence[Rows]) -> None:
        self._kernel, self._clients, self._batch = kernel, clients, batch
        self._rows = rows  # keeps them alive: kernels only have their addresses
        self.sound = clients.sound  # [C] bool: whether each client's change can be squared, once it is done

    def work(self, most: int = sys.maxsize) -> int:
        """Train up to `most` clients that no thread has taken yet; returns how many."""
        return self._kernel(most, self._batch, self._clients)

    def done(self, client: int) -> bool:
        """Whether a client is trained, and its results may be read."""
        return ready(self._clients.progress, client)


def training_job(
    plan: Plan,
    start: Rows,
    out: Rows,
    change: Rows,
    x: np.ndarray,
    y: np.ndarray,
    index: np.ndarray,
    step_ptr: np.ndarray,
    client_ptr: np.ndarray,
    lr: np.ndarray,
    losses: np.ndarray,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    mu: float = 0.0,
    shift: Rows = (),
    less: Rows = (),
    controls: ControlRows = NO_CONTROLS,
    pulls: Pulls = NO_PULLS,
    beta: float = 0.0,
    tau: float = 1.0,
    generated: ExtraFeatures | None = None,
    dropout: DropoutKeys | None = None,
    rounding: Rounding = NO_ROUNDING,
) -> TrainingJob:
    """The training of C clients by stochastic gradient descent.

    A step of a client: `g = dloss + mu*(w - w_start) + weight_decay*w + (shift - less)`, `v = momentum*v + g`
    (`v = g` in the first step), `w -= lr*v`. `start`, `out`, `change`, `shift` and `less` have a row of P
    contiguous numbers for each client; rows need not be adjacent.

    Args:
        plan: The model and its loss.
        start: C rows or one, the initial parameters of each client, or of all.
        out: C rows or none, receive the trained parameters.
        change: C rows, receive the trained minus the initial parameters.
        x: [N, D] float32, the samples of all clients; with fused features, the fixed ones follow each sample.
        y: [N] int64 labels, or float32 targets for the squared error.
        index: [T] int64, the rows of x for all steps of all clients, one after another.
        step_ptr: [S + 1] int64, where each step starts in `index`.
        client_ptr: [C + 1] int64, where each client starts in `step_ptr`.
        lr: [C] float32.
        losses: [C] float64, receives the mean over a client's steps of the loss before each update.
        momentum: As in torch.
        weight_decay: As in torch.
        mu: Weight of the proximal term.
        shift: C rows, one or none, added to every gradient.
        less: C rows or none, subtracted from the shift.
        controls: Receives the next control variates of clients whose shift is the common one, and whose own
            are in `less`.
        pulls: For each part of a client's parameters, adds `scale * (strengths[0] * ||w - centre|| +
            strengths[1] * ||mask o (w - centre)||)` to the loss.
        beta: Weight of the distillation of the initial model's predictions for all classes but the true one.
        tau: Temperature of the distillation.
        generated: Adds to the loss of a step with n samples `g_a` times the mean cross entropy of the last
            layer's outputs for the features after the first n, and `g_b` times the mean over its samples of
            KL(softmax of the outputs for the first n features || that for the samples), where the first
            argument counts as constant.
        dropout: Needed if the plan has dropout.
        rounding: Rounds g to the nearest number of a format, and v and w in every step to the nearest or
            at random. `start` must be rounded already.
    """
    generated = _NO_FEATURES if generated is None else generated
    labels, targets = (_NO_LABELS, y) if plan.loss == SQUARED_ERROR else (y, _NO_TARGETS)
    count, dense = len(client_ptr) - 1, dense_part(plan)
    params = plan.params
    sound, places = np.zeros(count, np.bool_), partial(_places, params)
    clients = Clients(
        plan.loss, params, places("start", start, 1, count), places("out", out, 0, count),
        places("change", change, count), x, labels, targets, index, step_ptr, client_ptr, lr, momentum,
        weight_decay, dense.held, dense.fusion, mu, places("shift", shift, 0, 1, count),
        places("less", less, 0, count), places("control", controls.own, 0, count),
        controls.reach,
        places("centre", pulls.centre, 0, 1, count), places("mask", pulls.mask, 0, 1, count),
        pulls.strengths, pulls.ptr, pulls.scales, pulls.tiny, beta, tau, *generated,
        *rounding, losses, sound, new_progress(count),
    )  # fmt: skip
    _check_all(plan, clients, len(y))
    return TrainingJob(
        _kernel(plan, dropout, count),
        clients,
        _largest_batch(clients),
        (start, out, change, shift, less, controls.own, pulls.centre, pulls.mask),
    )


def _kernel(plan: Plan, dropout: DropoutKeys | None, clients: int) -> Kernel:
    """The kernel of a plan. Only this kernel is compiled or loaded."""
    if isinstance(plan, DensePlan):
        from shoal.kernels.mlp_training import mlp_kernel

        return mlp_kernel(plan)
    from shoal.kernels.conv_training import conv_kernel

    hidden, drops = len(plan.drops), any(drop.rate for drop in plan.drops)
    if dropout is None and drops:
        raise ValueError("dropout needs keys")
    if dropout is None:
        dropout = DropoutKeys(np.zeros((clients, 2), np.uint64), np.zeros(hidden, np.uint64))
    _check("words", dropout.words, (clients, 2))
    _check("names", dropout.names, (hidden,))
    return conv_kernel(plan, dropout.words, dropout.names)


def _check_all(plan: Plan, given: Clients, samples: int) -> None:
    """Check all shapes: kernels do not check bounds."""
    clients, steps = len(given.sound), len(given.step_ptr) - 1
    dense = dense_part(plan)
    _check("x", given.x, (samples, plan.inputs + (dense.sizes[-2] if dense.fusion else 0)))
    _check("lr", given.lr, (clients,))
    _check("losses", given.losses, (clients,))
    if len(given.control) or len(given.reach):
        _check("reach", given.reach, (clients,))
        _check("control", given.control, (clients,))
        _check("less", given.less, (clients,))
        if not len(given.shift):
            raise ValueError("control variates need the common one as the shift")
    if len(given.centre):
        _check("strengths", given.strengths, (clients, 2))
        _check_pointers("pulls.ptr", given.part_ptr, len(given.part_scales), int(given.params))
        if given.strengths[:, 1].any() and not len(given.mask):
            raise ValueError("pulls of a mask need one")
        if dense.fusion:
            raise ValueError("a model with fused features cannot be pulled")
    _check_pointers("client_ptr", given.client_ptr, clients, steps)
    _check_pointers("step_ptr", given.step_ptr, steps, len(given.rows))
    if len(given.feature_ptr):
        _check("features", given.features, (len(given.classes), dense.sizes[-2]))
        _check("learned", given.learned, (dense.sizes[-1],))
        _check_pointers("ptr", given.feature_ptr, steps, len(given.classes))
    if len(given.forms):
        _check("forms", given.forms, (clients, 2))
        _check("largest", given.largest, (clients,))
        _check("words", given.words, (clients, 2))
    if (given.beta or len(given.feature_ptr)) and plan.loss != CROSS_ENTROPY:
        raise ValueError("distillation needs the cross entropy of classes")


def _largest_batch(given: Clients) -> int:
    """The number of samples in the largest step, with its features; raises `ValueError` if one is invalid."""
    first, last = given.client_ptr[0], given.client_ptr[-1]
    ends = given.step_ptr[first : last + 1]
    lengths, rows = np.diff(ends), given.rows[ends[0] : ends[-1]]
    if not lengths.size:
        return 1
    inside = (rows >= 0) & (rows < len(given.x))
    if not (lengths.all() and inside.all()):
        outside = np.searchsorted(ends, ends[0] + np.flatnonzero(~inside), side="right") - 1
        step = first + min([*np.flatnonzero(lengths == 0), *outside])
        raise ValueError(f"step {step} has no samples, or samples that are not among the {len(given.x)} of x")
    more = np.diff(given.feature_ptr[first : last + 1]) if len(given.feature_ptr) else 0
    return int((lengths + more).max())


def _places(params: int, name: str, rows: Rows, *counts: int) -> np.ndarray:
    """The addresses of rows of parameters. Each row is checked, because kernels only see addresses."""
    if len(rows) not in counts:
        raise ValueError(f"{name} must have {' or '.join(map(str, counts))} rows, got {len(rows)}")
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        _check(name, rows, (len(rows), params))
        _check_row(name, rows)
        return rows.ctypes.data + rows.strides[0] * np.arange(len(rows))
    found = np.empty(len(rows), np.int64)
    for i, row in enumerate(rows):
        _check(name, row, (params,))
        _check_row(name, row)
        found[i] = row.ctypes.data
    return found


def _check_row(name: str, rows: np.ndarray) -> None:
    if rows.dtype != np.float32 or not rows.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous float32, got {rows.dtype} with strides {rows.strides}")


def _check(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Check one shape."""
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}")


def _check_pointers(name: str, pointers: np.ndarray, count: int, end: int) -> None:
    """Check that pointers mark `count` consecutive ranges within 0 ... `end`."""
    _check(name, pointers, (count + 1,))
    if pointers[0] < 0 or pointers[-1] > end or (pointers[1:] < pointers[:-1]).any():
        raise ValueError(f"{name} must go up from at least 0 to at most {end}, got {pointers}")
