"""Local training of multilayer perceptrons: many clients per call, and no gradient is stored.

A client is trained in a padded copy of its parameters that stays in the processor's cache. The backward pass
takes one band of rows of a weight matrix at a time, first propagates the error through it to the layer below,
and then updates it in place. Clients are trained one after another and share only the workspace, so a
client's bits do not depend on the other clients of the call.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import int64

from shoal.kernels.jit import Flag, Index, given, kernel, merged
from shoal.kernels.layout import (
    Destination,
    Net,
    Workspace,
    copy,
    make_net,
    make_work,
    pack,
    pack_difference,
    subtract,
    unpack,
)
from shoal.kernels.passes import StepRule, backward, forward
from shoal.kernels.plan import DensePlan
from shoal.kernels.training_loop import CLIENTS, Clients, make_loop, make_spare


@merged
def _begin(scales: np.ndarray, net: Net, work: Workspace, client: Index, origin: np.ndarray) -> None:
    pack(net, origin, work.params)


@merged
def _lay(scales: np.ndarray, net: Net, work: Workspace, shift: np.ndarray, less: np.ndarray) -> Flag:
    own = work.mix.size
    found = pack_difference(net, shift[own:], less[own:], work.shift)
    return found | subtract(work.mix_shift, shift[:own], less[:own])


@merged
def mlp_ahead(
    scales: np.ndarray, net: Net, work: Workspace, x: np.ndarray, rows: np.ndarray, step: Index
) -> None:
    """Compute the activations of all layers for the samples `rows`."""
    for b in range(rows.size):
        copy(work.values, b * net.strides[0], x[rows[b]], np.int64(0), net.sizes[0])
    forward(net, work, rows.size)


@merged
def _back(
    scales: np.ndarray, net: Net, work: Workspace, batch: Index, last: Index, rule: StepRule, step: Index,
    origin: np.ndarray,
) -> None:  # fmt: skip
    backward(net, work, batch, last, rule, step, origin, scales)


@merged
def _end(scales: np.ndarray, net: Net, work: Workspace, origin: np.ndarray, to: Destination) -> Flag:
    return unpack(net, work.params, work.shift, origin, to)


_train_clients = make_loop(_begin, _lay, mlp_ahead, _back, _end)


@kernel(int64(int64, int64, given(int64, 1), *CLIENTS))
def _train(
    most: int, batch: int, sizes: np.ndarray, loss: int, params: int, start: np.ndarray, out: np.ndarray,
    change: np.ndarray, x: np.ndarray, labels: np.ndarray, targets: np.ndarray, index: np.ndarray,
    step_ptr: np.ndarray, client_ptr: np.ndarray, lr: np.ndarray, momentum: float, weight_decay: float,
    held: int, fusion: int, mu: float, shift: np.ndarray, less: np.ndarray, control: np.ndarray,
    reach: np.ndarray, centre: np.ndarray, mask: np.ndarray,
    strengths: np.ndarray, part_ptr: np.ndarray, part_scales: np.ndarray, tiny: float, beta: float,
    tau: float, features: np.ndarray, classes: np.ndarray, feature_ptr: np.ndarray, learned: np.ndarray,
    g_a: float, g_b: float, forms: np.ndarray, largest: np.ndarray, random: bool, words: np.ndarray,
    losses: np.ndarray, sound: np.ndarray, progress: np.ndarray,
) -> int:  # fmt: skip
    """See `make_loop`. No step has more than `batch` samples."""
    clients = Clients(
        loss, params, start, out, change, x, labels, targets, index, step_ptr, client_ptr, lr, momentum,
        weight_decay, held, fusion, mu, shift, less, control, reach, centre, mask, strengths,
        part_ptr, part_scales, tiny, beta, tau, features, classes, feature_ptr, learned, g_a, g_b, forms,
        largest, random, words, losses, sound, progress,
    )  # fmt: skip
    net = make_net(sizes, batch)
    shifts = shift.size > 0 or centre.size > 0
    work = make_work(net, batch, momentum != 0.0, shifts, forms.size > 0, fusion)
    scales = np.ones(sizes.size - 2, np.float32)
    spare = make_spare(clients, sizes[-1])
    return _train_clients(clients, most, net, work, spare, scales)  # type: ignore[return-value]


def mlp_kernel(plan: DensePlan) -> Callable[[int, int, Clients], int]:
    """A function that trains up to `most` clients of a perceptron, with at most `batch` samples per step."""
    sizes = np.array(plan.sizes, np.int64)

    def some(most: int, batch: int, clients: Clients) -> int:
        return _train(most, batch, sizes, *clients)  # type: ignore[arg-type]

    return some
