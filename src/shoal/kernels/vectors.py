"""LLVM code for vectors, of float32 if nothing else is said, of which the tiles are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding
from llvmlite import ir

# 32 registers of 16 lanes, not 16 of 8
BROAD: bool = llvmlite.binding.get_host_cpu_features().get("avx512f", False)
FLOAT, INDEX = ir.FloatType(), ir.IntType(64)
_LANE = ir.IntType(32)


def vector(lanes: int) -> ir.VectorType:
    """The type of a vector."""
    return ir.VectorType(FLOAT, lanes)


class Loop:
    """A counted loop with at least one iteration, and vector sums that stay in registers.

    Loops may be nested: the inner one begins with the outer one's `sums`, which then take its own. Pointers
    of `walks` go ahead by their stride in every iteration. LLVM is told not to unroll the loop: for strides
    that it does not know it gives each access a register of its own, and runs out of them.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        end: ir.Value,
        step: int,
        begin: Sequence[ir.Value],
        walks: Sequence[tuple[ir.Value, ir.Value]] = (),
    ) -> None:
        self._builder, self._end, self._step = builder, end, step
        self._before, self._body = builder.block, builder.append_basic_block("tile")
        builder.branch(self._body)
        builder.position_at_end(self._body)
        self.at = self._phi(INDEX(0))
        self._phis, self._strides = [self._phi(value) for value in begin], [stride for _, stride in walks]
        self.sums: list[ir.Value] = list(self._phis)
        self.walks = [self._phi(pointer) for pointer, _ in walks]

    def _phi(self, first: ir.Value) -> ir.PhiInstr:
        phi = self._builder.phi(first.type)
        phi.add_incoming(first, self._before)
        return phi

    def __enter__(self) -> Loop:
        return self

    def add(self, which: int, left: ir.Value, right: ir.Value) -> None:
        """Add a product to a sum."""
        self.sums[which] = fma(self._builder, left, right, self.sums[which])

    def __exit__(self, *_: object) -> None:
        builder = self._builder
        following = builder.add(self.at, INDEX(self._step))
        ahead = [builder.gep(walk, [stride]) for walk, stride in zip(self.walks, self._strides, strict=True)]
        phis = [self.at, *self._phis, *self.walks]
        for phi, value in zip(phis, [following, *self.sums, *ahead], strict=True):
            phi.add_incoming(value, builder.block)
        after = builder.append_basic_block("after")
        branch = builder.cbranch(builder.icmp_signed("<", following, self._end), self._body, after)
        branch.set_metadata("llvm.loop", _as_it_is(builder.module))
        builder.position_at_end(after)


def _as_it_is(module: ir.Module) -> ir.MDValue:
    """What tells LLVM not to unroll a loop: a node whose first operand is itself, as it wants it."""
    never = module.add_metadata(["llvm.loop.unroll.disable"])
    node = module.add_metadata([never, INDEX(len(module.metadata))])  # a number, so that no two are the same
    node.operands = (node, never)
    return node


def zeros(count: int, lanes: int) -> list[ir.Value]:
    """Sums to begin with."""
    return [ir.Constant(vector(lanes), None)] * count


def start(context: Any, builder: ir.IRBuilder, signature: Any, args: Any, at: int) -> ir.Value:
    """A pointer to the start of the array argument `at`, plus the offset that follows it."""
    array = context.make_array(signature.args[at])(context, builder, args[at])
    return builder.gep(array.data, [args[at + 1]])


def load(builder: ir.IRBuilder, place: ir.Value, lanes: int, mask: ir.Value | None = None) -> ir.Value:
    """The vector at a place, which need not be aligned; 0, unread, in lanes that a mask leaves out."""
    pointer, align = _as_vectors(builder, place, lanes)
    kind = pointer.type.pointee
    if mask is None:
        return builder.load(pointer, align=align)
    wanted = ir.FunctionType(kind, [pointer.type, _LANE, mask.type, kind])
    arguments = [pointer, _LANE(align), mask, ir.Constant(kind, None)]
    return builder.call(_masked(builder, "load", kind, wanted), arguments)


def store(builder: ir.IRBuilder, value: ir.Value, place: ir.Value, mask: ir.Value | None = None) -> None:
    """Write a vector, or those of its lanes that a mask has."""
    kind = value.type
    pointer, align = _as_vectors(builder, place, kind.count)
    if mask is None:
        builder.store(value, pointer, align=align)
        return
    wanted = ir.FunctionType(ir.VoidType(), [kind, pointer.type, _LANE, mask.type])
    builder.call(_masked(builder, "store", kind, wanted), [value, pointer, _LANE(align), mask])


def _as_vectors(builder: ir.IRBuilder, place: ir.Value, lanes: int) -> tuple[ir.Value, int]:
    """A pointer to vectors, and the alignment of their numbers in bytes."""
    kind = place.type.pointee
    pointer = builder.bitcast(place, ir.VectorType(kind, lanes).as_pointer())
    return pointer, 8 if kind == ir.DoubleType() else 4


def _masked(builder: ir.IRBuilder, what: str, kind: ir.VectorType, wanted: ir.FunctionType) -> ir.Function:
    module, vectors = builder.module, _named(kind)
    name = f"llvm.masked.{what}.{vectors}.p0{vectors}"
    return module.globals.get(name) or ir.Function(module, wanted, name)


def _named(kind: ir.VectorType) -> str:
    """As intrinsics call it."""
    return f"v{kind.count}f{64 if kind.element == ir.DoubleType() else 32}"


def shuffle(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """The chosen lanes of two vectors, counted through both."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_LANE, len(lanes)), lanes))


def spread(builder: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """The same number in every lane."""
    nothing = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    return shuffle(builder, builder.insert_element(nothing, value, _LANE(0)), nothing, [0] * lanes)


def fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once."""
    kind, module = a.type, builder.module
    name = f"llvm.fma.{_named(kind)}"
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(function, [a, b, c])


def joined(builder: ir.IRBuilder, parts: Sequence[ir.Value], lanes: int) -> list[ir.Value]:
    """Vectors of so many lanes, each put together of neighbours."""
    vectors, width = list(parts), int(parts[0].type.count)
    while width < lanes:
        width *= 2
        vectors = [shuffle(builder, a, b, list(range(width))) for a, b in zip(vectors[::2], vectors[1::2])]
    return vectors


def prefetch(builder: ir.IRBuilder, place: ir.Value) -> None:
    """Ask for what lies there, to have it in the nearest cache soon; the place need not exist."""
    byte, number, module = ir.IntType(8).as_pointer(), ir.IntType(32), builder.module
    name, kind = "llvm.prefetch.p0i8", ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = module.globals.get(name) or ir.Function(module, kind, name)
    to_read, keep, data = number(0), number(3), number(1)
    builder.call(function, [builder.bitcast(place, byte), to_read, keep, data])


def first_lanes(builder: ir.IRBuilder, count: ir.Value, lanes: int) -> ir.Value:
    """Of each lane whether it is one of the first `count`."""
    numbers = ir.Constant(ir.VectorType(INDEX, lanes), list(range(lanes)))
    return builder.icmp_signed("<", numbers, spread(builder, count, lanes))


def turned(builder: ir.IRBuilder, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """The columns of as many vectors as each has lanes, a power of two."""
    rows, side, step = list(rows), len(rows), 1
    while step < side:  # rows and lanes whose numbers differ in one bit change places
        for i in (i for i in range(side) if not i & step):
            a, b, lanes = rows[i], rows[i + step], range(side)
            low = [lane + side - step if lane & step else lane for lane in lanes]
            high = [lane + side if lane & step else lane + step for lane in lanes]
            rows[i], rows[i + step] = shuffle(builder, a, b, low), shuffle(builder, a, b, high)
        step *= 2
    return rows
