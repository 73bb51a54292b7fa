"""The memory layout of the parameters and activations of dense layers.

Every matrix is part of a flat array. Rows start at multiples of `LANES` and are padded with zeros, so that
the tiles only see complete vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np.arrayobj import populate_array

from shoal.kernels.jit import Flag, Index, Real, bare, emitted, inner
from shoal.kernels.philox_blocks import PER_BLOCK
from shoal.kernels.tiles import LANES
from shoal.kernels.vectors import INDEX, start

SQUARABLE = np.float32(np.sqrt(np.finfo(np.float32).max))  # the squares of larger numbers overflow
MODERATE = SQUARABLE / np.float32(4)  # the sum of two such numbers can be squared
BAND = 32  # rows of weights that are used for the layer below and then updated while still in the cache
ROUNDED = 512  # parameters of other layers that are rounded together
_ZERO, _ONE = np.float32(0), np.float32(1)
_BYTES = 4  # of a float32


class Net(NamedTuple):
    """The offsets of all arrays. Layer l maps `sizes[l]` numbers to `sizes[l + 1]`."""

    sizes: np.ndarray  # [layers + 1]
    strides: np.ndarray  # [layers + 1] sizes, rounded up to whole vectors
    weights: np.ndarray  # [layers] where the matrix of a layer starts in the padded parameters
    biases: np.ndarray  # [layers]
    values: np.ndarray  # [layers + 1] where each layer starts in the values and slopes of a `Workspace`


class RoundingSpace(NamedTuple):
    """Scratch space for rounding a row to a number format; empty unless the step rounds."""

    noise: np.ndarray
    unit: np.ndarray
    inverse: np.ndarray


class Workspace(NamedTuple):
    """The arrays used in training."""

    params: np.ndarray
    speed: np.ndarray  # momentum, with the layout of the parameters; empty without momentum
    shift: np.ndarray  # added to every gradient, in the same layout; empty if nothing is
    values: np.ndarray  # activations of the mini-batch: the input, then the outputs of each layer
    slopes: np.ndarray  # the gradients of the activations
    gradient: np.ndarray  # of one band of rows
    one: np.ndarray  # [1] 1
    rounding: RoundingSpace
    mix: np.ndarray  # lambda of fused features; like the rest, empty without them
    mix_slope: np.ndarray  # its gradient
    mix_speed: np.ndarray  # its momentum
    mix_shift: np.ndarray  # its shift
    own: np.ndarray  # the features of the trained model, which fused ones replaced
    given: np.ndarray  # those of the fixed model


@inner
def make_net(sizes: np.ndarray, batch: Index) -> Net:
    """The layout for batches of at most `batch` samples."""
    layers = sizes.size - 1
    strides = (sizes + (LANES - 1)) // LANES * LANES
    weights, biases = np.empty(layers, np.int64), np.empty(layers, np.int64)
    values = np.zeros(layers + 1, np.int64)
    at = 0
    for layer in range(layers):
        weights[layer] = at
        biases[layer] = at + sizes[layer + 1] * strides[layer]
        at = biases[layer] + strides[layer + 1]
        values[layer + 1] = values[layer] + batch * strides[layer]
    return Net(sizes, strides, weights, biases, values)


@inner
def make_work(net: Net, batch: Index, momentum: Flag, shifts: Flag, rounds: Flag, fusion: Index) -> Workspace:
    """Zeros of the right sizes. `fusion` is the length of lambda, 0 without fused features."""
    none, params = np.int64(0), net.biases[-1] + net.strides[-1]
    values = net.values[-1] + batch * net.strides[-1]
    widest = net.strides[0]
    for stride in net.strides:
        widest = max(widest, stride)
    one = zeros(np.int64(1))
    one[0] = _ONE
    fused = batch * net.strides[-2] if fusion else none
    wide = max(widest, ROUNDED) + 2 * PER_BLOCK if rounds else none
    return Workspace(
        zeros(params), zeros(params if momentum else none), zeros(params if shifts else none), zeros(values),
        zeros(values), zeros(BAND * widest), one, RoundingSpace(zeros(wide), zeros(wide), zeros(wide)),
        zeros(fusion), zeros(fusion), zeros(fusion), zeros(fusion if shifts else none), zeros(fused),
        zeros(fused),
    )  # fmt: skip


@inner
def zeros(size: Index) -> np.ndarray:
    """Zeros aligned to a cache line: vectors that cross two lines take twice as long."""
    space = np.zeros(size + LANES, np.float32)
    skip = -(space.ctypes.data // 4) % LANES
    return space[skip : skip + size]


@emitted
def copy(typing: Any, y: Any, yo: Any, x: Any, xo: Any, n: Any) -> Any:
    """y[yo : yo + n] = x[xo : xo + n], without the slices, whose reference counts take as long as a row."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        into, source = (start(context, builder, signature, args, at) for at in (0, 2))
        cgutils.raw_memcpy(builder, into, source, args[4], _BYTES)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(y, types.int64, x, types.int64, types.int64), emit


@emitted
def clear(typing: Any, y: Any, yo: Any, n: Any) -> Any:
    """y[yo : yo + n] = 0."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        into, size = start(context, builder, signature, args, 0), builder.mul(args[2], INDEX(_BYTES))
        cgutils.memset(builder, into, size, 0)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(y, types.int64, types.int64), emit


@emitted
def row_at(typing: Any, address: Any, size: Any) -> Any:
    """The `size` numbers at an address, as an array without reference counting."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        row = context.make_array(signature.return_type)(context, builder)
        width = context.get_constant(types.intp, _BYTES)
        data = builder.inttoptr(args[0], row.data.type)
        populate_array(row, data, [args[1]], [width], width, meminfo=None)  # type: ignore[no-untyped-call]
        return row._getvalue()

    return types.Array(types.float32, 1, "C")(types.int64, types.int64), emit


@bare
def pack(net: Net, flat: np.ndarray, params: np.ndarray) -> None:
    """Copy parameters into the padded layout."""
    at = np.int64(0)
    for layer in range(net.weights.size):
        wide, out = net.sizes[layer], net.sizes[layer + 1]
        for o in range(out):
            _pad(params, net.weights[layer] + o * net.strides[layer], net.strides[layer], flat, at, wide)
            at += wide
        _pad(params, net.biases[layer], net.strides[layer + 1], flat, at, out)
        at += out


@bare
def pack_difference(net: Net, flat: np.ndarray, less: np.ndarray, params: np.ndarray) -> Flag:
    """Copy flat - less into the padded layout, whose padding is 0; returns whether any of it is not 0.

    Nothing is subtracted if `less` is empty.
    """
    at: Index = np.int64(0)
    found: Flag = False
    for layer in range(net.weights.size):
        wide, out = net.sizes[layer], net.sizes[layer + 1]
        for o in range(out):
            place = net.weights[layer] + o * net.strides[layer]
            found |= subtract(params[place : place + wide], flat[at : at + wide], less[at : at + wide])
            at += wide
        place = net.biases[layer]
        found |= subtract(params[place : place + out], flat[at : at + out], less[at : at + out])
        at += out
    return found


@bare
def subtract(y: np.ndarray, x: np.ndarray, less: np.ndarray) -> Flag:
    """y = x - less, or x if `less` is empty; returns whether any of it is not 0."""
    found: Flag = False
    if less.size:
        for i in range(y.size):
            y[i] = x[i] - less[i]
            found |= y[i] != _ZERO
    else:
        for i in range(y.size):
            y[i] = x[i]
            found |= y[i] != _ZERO
    return found


@bare
def _pad(y: np.ndarray, yo: Index, stride: Index, x: np.ndarray, xo: Index, n: Index) -> None:
    """Copy a row and clear its padding, where a diverged client may have left nan."""
    copy(y, yo, x, xo, n)
    clear(y, yo + n, stride - n)


class Destination(NamedTuple):
    """Where the results of a client's training go, in the order of the model."""

    trained: np.ndarray  # the parameters; empty if they are not needed
    change: np.ndarray  # the parameters minus the initial ones
    control: np.ndarray  # the next control variate, see `leave`; empty if it is not needed
    pace: Real  # 1 / the distance that the client's steps cover with a gradient of 1


@bare
def part_of(whole: Destination, first: Index, last: Index) -> Destination:
    """The destination of some parameters."""
    trained, change = whole.trained[first:last], whole.change[first:last]
    return Destination(trained, change, whole.control[first:last], whole.pace)


@bare
def unpack(net: Net, params: np.ndarray, shift: np.ndarray, origin: np.ndarray, to: Destination) -> Flag:
    """The inverse of `pack`, with all other results: see `leave`."""
    at: Index = np.int64(0)
    sound: Flag = True
    for layer in range(net.weights.size):
        wide, out = net.sizes[layer], net.sizes[layer + 1]
        for o in range(out):
            place = net.weights[layer] + o * net.strides[layer]
            sound &= leave(params, shift, place, origin, at, wide, to)
            at += wide
        sound &= leave(params, shift, net.biases[layer], origin, at, out, to)
        at += out
    return sound


@bare
def leave(
    params: np.ndarray, shift: np.ndarray, at: Index, origin: np.ndarray, first: Index, count: Index,
    to: Destination,
) -> Flag:  # fmt: skip
    """Write the results for `count` parameters that start at `at` in `params`, and at `first` in the model.

    The next control variate is `0 - shift - change * pace`: the shift is the common one minus the client's.
    Returns whether all changes can be squared, and also those of control variates, provided that the common
    one is no larger than `MODERATE`: the check costs nothing here.
    """
    row, start, strange = params[at : at + count], origin[first : first + count], False
    trained, change = to.trained[first : first + count], to.change[first : first + count]
    for i in range(trained.size):
        trained[i] = row[i]
    for i in range(count):
        change[i] = row[i] - start[i]
        strange |= not abs(change[i]) <= SQUARABLE
    control, before = to.control[first : first + count], shift[at : at + count]
    for i in range(control.size):
        mean = change[i] * to.pace
        control[i] = _ZERO - before[i] - mean
        strange |= not abs(mean) <= MODERATE
    return not strange
