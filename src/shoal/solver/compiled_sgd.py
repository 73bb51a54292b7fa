"""Local training with the compiled kernels, for small models: one client, or a block of them.

A client's arithmetic does not depend on the block, so a block gives the same bits as one client after
another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from shoal.core.control import ControlChanges
from shoal.core.data import Block
from shoal.core.flat import Flat
from shoal.core.key import Key, text_word
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.threads import other_threads
from shoal.core.trained import TrainedBlock
from shoal.core.training import Start
from shoal.core.tree import zeros_like
from shoal.core.types import Weights
from shoal.kernels.plan import ConvPlan, DensePlan, Plan, dense_part
from shoal.kernels.training import (
    NO_PULLS,
    NO_ROUNDING,
    ControlRows,
    DropoutKeys,
    ExtraFeatures,
    Pulls,
    Rounding,
    TrainingJob,
    training_job,
)
from shoal.solver.torch_sgd import Rule
from shoal.terms.closeness import TINY, Closeness
from shoal.terms.generated import Generated, generate
from shoal.terms.not_true import NotTrue
from shoal.terms.proximal import Proximal

NO_REACH = np.empty(0, np.float32)  # no control variates are wanted
LARGEST = {DensePlan: 2_000_000, ConvPlan: 4_000_000}  # parameters; torch is faster for larger layers


def fits(task: Task, terms: tuple[Term, ...]) -> bool:
    """Whether the kernels support the model and the terms added to its loss."""
    others = tuple(type(term) for term in terms if not isinstance(term, Closeness))
    return task.plan is not None and _fits(task.plan, others) and _pulls_fit(task, _closeness(terms))


@lru_cache(maxsize=256)  # called for every client of a round
def _fits(plan: Plan, kinds: tuple[type[Term], ...]) -> bool:
    known = {Proximal} if dense_part(plan).fusion else {Proximal, NotTrue, Generated}
    once = len(set(kinds)) == len(kinds)
    return plan.params <= LARGEST[type(plan)] and once and known.issuperset(kinds)


def _closeness(terms: Sequence[Term]) -> list[Closeness]:
    return [term for term in terms if isinstance(term, Closeness) and term.active]


def _pulls_fit(task: Task, pulls: Sequence[Closeness]) -> bool:
    """Whether the kernels support the pulls: one with a mask, one without, or both, towards one centre."""
    if not pulls:
        return True
    assert task.plan is not None
    kinds, centre = {pull.kind for pull in pulls}, pulls[0].centre
    alike = all(pull.centre is centre and pull.by_layer == pulls[0].by_layer for pull in pulls)
    whole = centre.keys() == task.shapes.keys() and not dense_part(task.plan).fusion
    return alike and whole and len(kinds) == len(pulls)


def load_kernel(task: Task) -> None:
    """Load the kernel that trains the model, or compile it, which takes a minute the first time."""
    if task.plan is not None:
        import_module(f"shoal.kernels.{'mlp' if isinstance(task.plan, DensePlan) else 'conv'}_training")


def train(
    rule: Rule,
    task: Task,
    starts: Sequence[Start],
    terms: tuple[Term, ...],
    block: Block,
    keys: Sequence[Key],
    threads: int,
    rounding: Rounding = NO_ROUNDING,
    reach: np.ndarray = NO_REACH,
) -> TrainedBlock:
    """Train the clients of a block, each from its own start, or all from one.

    `reach` [clients] is how far each client's steps go with a gradient of 1, if control variates are wanted.
    """
    assert task.plan is not None
    clients, params = len(block.counts), task.plan.params
    alike = all(start.weights is starts[0].weights for start in starts)
    begin = [start.weights.params for start in (starts[:1] if alike else starts)]
    shifts, less = _shifts(starts)
    kept = 0 if all(start.only_update for start in starts) else clients
    out, change = [torch.empty(params) for _ in range(kept)], torch.empty(clients, params)
    losses, controlled = torch.empty(clients, dtype=torch.float64), len(reach)
    own = [torch.empty(params) for _ in range(controlled)]
    distil = next((term for term in terms if isinstance(term, NotTrue)), NotTrue(0.0, 1.0))
    follow = [term for start in starts for term in start.terms if isinstance(term, Generated) and term.active]
    job = training_job(
        task.plan,
        _rows(begin, task),
        [row.numpy() for row in out],
        change.numpy(),
        block.x.reshape(len(block.x), -1).numpy(),
        block.y.numpy(),
        block.rows,
        block.step_ptr,
        block.client_ptr,
        _rates(rule.rate, starts, clients),
        losses.numpy(),
        momentum=rule.momentum,
        weight_decay=rule.weight_decay,
        mu=sum(term.mu for term in terms if isinstance(term, Proximal)),
        shift=_rows(shifts, task),
        less=_rows(less, task),
        controls=ControlRows([row.numpy() for row in own], reach),
        pulls=_pulls(starts, task, clients),
        beta=distil.beta,
        tau=distil.tau,
        generated=_generated(follow, block, keys) if follow else None,
        dropout=_dropout(task.plan, keys),
        rounding=rounding,
    )
    changes = task.layout.tree(change)
    return TrainedBlock(
        [Weights(task.layout.tree(row), starts[0].weights.buffers) for row in out],
        Weights(changes, {}),
        np.diff(block.client_ptr),
        losses,
        job.sound,
        in_background(job, min(threads, clients)),
        [task.layout.tree(row) for row in own],
        ControlChanges(changes, [parameter_vector(each, task) for each in shifts], 1 / reach) if own else (),
    )


def in_background(job: TrainingJob, threads: int) -> Callable[[int | None], None]:
    """Start training in all threads but this one. Returns a function that waits for one client, or for all.

    A waiting thread also trains clients, as long as there are any that no thread has taken.
    """
    others = [other_threads(threads).submit(job.work) for _ in range(threads - 1)]

    def wait(client: int | None) -> None:
        while client is not None and not job.done(client):
            if not job.work(1):
                client = None
        if client is None:
            job.work()
            for other in others:
                other.result()

    return wait


def _rates(rate: float, starts: Sequence[Start], clients: int) -> np.ndarray:
    """[clients] float32: the learning rate of each."""
    if len(starts) == 1:
        return np.full(clients, rate * starts[0].pace, np.float32)
    return np.array([rate * start.pace for start in starts], np.float32)


def _dropout(plan: Plan, keys: Sequence[Key]) -> DropoutKeys | None:
    """The random keys of the clients' dropout; None if the plan has no dropout."""
    if isinstance(plan, DensePlan) or not any(drop.rate for drop in plan.drops):
        return None
    names = [text_word(drop.noise) for drop in plan.drops]
    return DropoutKeys(np.array([key.words for key in keys], np.uint64), np.array(names, np.uint64))


def _generated(terms: Sequence[Generated], block: Block, keys: Sequence[Key]) -> ExtraFeatures:
    """The generated features for all steps of all clients, whose terms are of one kind.

    They are computed client by client: the last bits of a matrix product depend on its number of rows.
    """
    classes, features, y = [], [], block.y[torch.from_numpy(block.rows)]
    for term, key, (first, last) in zip(terms, keys, pairwise(block.client_ptr.tolist()), strict=True):
        some, noise = [], []
        for step in range(first, last):
            own = y[block.step_ptr[step] : block.step_ptr[step + 1]]
            drawn, random = term.drawn(key.fold(step - first), own)
            some.append(drawn)
            noise.append(random)
        with torch.no_grad():
            features.append(generate(term.generator, torch.cat(noise), torch.cat(some)))
        classes += some
    ends, common = np.cumsum([0, *map(len, classes)]), terms[0]
    labels, learned = torch.cat(classes).numpy(), common.learned.numpy()
    return ExtraFeatures(torch.cat(features).numpy(), labels, ends, learned, common.g_a, common.g_b)


def _pulls(starts: Sequence[Start], task: Task, clients: int) -> Pulls:
    """The pulls of all clients, which are of one kind."""
    terms = [_closeness(start.terms) for start in starts]
    if not any(terms):
        return NO_PULLS
    masks = [pull.mask for pulls in terms for pull in pulls if pull.mask is not None]
    centres = [pulls[0].centre for pulls in terms]
    if all(centre is centres[0] for centre in centres):
        del centres[1:]
    strengths = np.zeros((clients, 2), np.float32)
    for i, pulls in enumerate(terms):
        for pull in pulls:
            strengths[i if len(terms) > 1 else slice(None), int(pull.mask is not None)] = pull.strength
    sizes = np.array(task.layout.sizes if terms[0][0].by_layer else [sum(task.layout.sizes)])
    scales = 1 / np.sqrt(sizes) if terms[0][0].by_layer else np.ones(1)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return Pulls(_rows(centres, task), _rows(masks, task), strengths, ends, scales.astype(np.float32), TINY)


def _shifts(starts: Sequence[Start]) -> tuple[list[Mapping[str, Tensor]], list[Mapping[str, Tensor]]]:
    """The shift of each start, or one for all, and what is subtracted from it: zeros where a start has none.

    Both are empty if no start has one.
    """
    if all(start.shift is None for start in starts):
        return [], []
    lacking = any(start.shift is None or start.less is None for start in starts)
    none = zeros_like(starts[0].weights.params) if lacking else {}
    shifts = [none if start.shift is None else start.shift for start in starts]
    if all(shift is shifts[0] for shift in shifts):
        del shifts[1:]
    if all(start.less is None for start in starts):
        return shifts, []
    return shifts, [none if start.less is None else start.less for start in starts]


def _rows(rows: Sequence[Mapping[str, Tensor]], task: Task) -> list[np.ndarray]:
    """The concatenated tensors of each row, in the model's order."""
    return [parameter_vector(row, task).contiguous().numpy() for row in rows]


def parameter_vector(row: Mapping[str, Tensor], task: Task) -> Tensor:
    """[parameters]: the concatenated tensors of a model, in its order."""
    if isinstance(row, Flat) and row.layout == task.layout:
        return row.vector
    return torch.cat([row[name].reshape(-1) for name in task.shapes])
