"""Swarm methods: the server sends candidate parameters, clients return losses.

The server keeps particles and their losses. In an exchange it sends a candidate for every particle, clients
return their summed losses at the candidates, and a particle moves to its candidate if that has the smaller
loss. Then the method's update rule generates the next candidates. An epoch takes one exchange.

Losses are compared only if they come from the same clients. If the cohort differs from the cohort of the
stored losses, the particles are sent along with the candidates; if a client drops out, no particle moves, and
the next exchange sends both.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.gate import Like
from shoal.core.key import Key
from shoal.core.method import Axes, Method
from shoal.core.task import Task
from shoal.core.tree import all_finite
from shoal.core.types import Cohort, Context, Memory, Metrics, Moment, Reply, Weights
from shoal.kernels.swarm import FSI, PSO, SwarmRule, advance, descend
from shoal.parts.landscape import (
    LossForm,
    Quadratic,
    kind_of,
    landscape_of,
    problems_of,
    unpacked,
)
from shoal.parts.swarm_state import (
    SwarmState,
    as_flock,
    candidate_losses,
    finite_or_infinite,
    with_flock,
    with_nonfinite,
    words_of,
)

__all__ = [
    "FSI",
    "PSO",
    "Swarm",
    "SwarmAcc",
    "SwarmMessage",
    "SwarmReply",
    "SwarmRule",
    "SwarmState",
    "finite_or_infinite",
]

LARGEST_SWARM = 2**30  # bytes of all particles


class SwarmMessage(NamedTuple):
    """The message to a client."""

    candidates: Tensor
    positions: Tensor | tuple[()]  # the particles, if their losses are needed too


class SwarmReply(NamedTuple):
    """A client's reply: losses summed over its samples, [problems, particles] float64."""

    losses: Tensor  # of the candidates
    position_losses: Tensor | tuple[()]


class SwarmAcc(NamedTuple):
    """The accumulator."""

    clients: tuple[int, ...]
    samples: float
    losses: Tensor  # [problems, particles] float64
    position_losses: Tensor | None  # None: not needed
    nonfinite: tuple[int, ...]


class Swarm(Method):
    """The server and client sides of a swarm method; a subclass adds its fields and its update rule."""

    epochs: int
    particles: int
    initial_range: float
    loss: LossForm

    @property
    @abstractmethod
    def rule(self) -> SwarmRule:
        """The update rule of the particles."""

    @property
    def first_step(self) -> float:
        """The step size before the first epoch."""
        return 1.0

    def check_fields(self) -> None:
        """Raise `SpecError` for invalid values of the shared fields."""
        if self.epochs < 1:
            raise SpecError(f"epochs must be at least 1, got {self.epochs}; a round has that many exchanges")
        if self.particles < 2:
            raise SpecError(f"particles must be at least 2, got {self.particles}; 20 to 30 are usual")
        if not 0 < self.initial_range < math.inf:
            raise SpecError(f"initial_range must be > 0, got {self.initial_range:g}; 0.01 is usual")

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        if task.batch_norms or task.init(Key.from_seed(0)).buffers:
            raise SpecError(
                "this method cannot train a model with BatchNorm or other buffers, which need gradients; "
                "use a model without them, such as linear, logistic_ova or mlp"
            )
        if not axes.codec.transparent:
            broken = "clients evaluate rounded candidates, and the server compares rounded losses"
            warnings.warn(f"with a lossy codec {broken} in a swarm", stacklevel=2)

    # ---- server

    def init(self, task: Task, key: Key) -> SwarmState:
        """See `Method`."""
        shapes = {name: tuple(shape) for name, shape in task.shapes.items()}
        parameters = sum(math.prod(shape) for shape in shapes.values())
        if 8 * parameters * self.particles > LARGEST_SWARM:
            raise SpecError(
                f"{self.particles} particles of {parameters:,} parameters take more than a gigabyte; "
                "swarms are for small models: use a smaller one, or fewer particles"
            )
        if self.loss == "paper" and kind_of(task) != "logistic":
            raise SpecError(
                'loss = "paper" is only for one-versus-all linear models (logistic_ova); use loss = "stable"'
            )
        problems = problems_of(task)
        shape = (parameters // problems, problems, self.particles)
        start = torch.from_numpy(self.initial_range * key.fold("particles").numpy().random(shape))
        return SwarmState(
            particles=start,
            velocities=torch.zeros_like(start),
            candidates=start.clone(),
            losses=torch.full_like(start[0], math.inf),
            step_sizes=torch.full((problems,), self.first_step, dtype=start.dtype),
            fails=torch.zeros(problems, dtype=torch.int64),
            epoch=0,
            words=key.fold("swarm").words,
            shapes=shapes,
            clients=(),
            samples=0.0,
            nonfinite=(),
        )

    def legs(self, state: SwarmState, cohort: Cohort, moment: Moment) -> tuple[Cohort, ...]:
        """See `Method`. The very first exchange only evaluates the initial particles."""
        return (cohort,) * (self.epochs + (state.epoch == 0))

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`. Losses that are not finite are treated as infinite."""
        losses = Like(tuple(sent.candidates.shape[1:]), torch.float64, finite=False)
        return {"losses": losses, "position_losses": losses if isinstance(sent.positions, Tensor) else ()}

    def dispatch(self, task: Task, state: SwarmState, cohort: Cohort, moment: Moment) -> SwarmMessage:
        """See `Method`."""
        comparable = state.epoch == 0 or set(cohort.ids) == set(state.clients)
        return SwarmMessage(state.candidates, () if comparable else state.particles)

    def begin(self, state: SwarmState, cohort: Cohort) -> SwarmAcc:
        """See `Method`."""
        return SwarmAcc((), 0.0, torch.zeros_like(state.losses), None, ())

    def fold(self, acc: SwarmAcc, client: int, sent: Any, reply: Reply) -> SwarmAcc:
        """See `Method`."""
        new, old = reply.payload
        asked = isinstance(old, Tensor)
        return SwarmAcc(
            (*acc.clients, client),
            acc.samples + float(reply.weight),  # type: ignore[arg-type]  # every reply has one
            acc.losses + finite_or_infinite(new),
            _sum(acc.position_losses, finite_or_infinite(old)) if asked else None,
            acc.nonfinite if all_finite(reply.payload) else (*acc.nonfinite, client),
        )

    def finish(
        self, task: Task, state: SwarmState, acc: SwarmAcc, moment: Moment
    ) -> tuple[SwarmState, Metrics]:
        """See `Method`."""
        if not acc.clients:
            return state, {}
        state = with_nonfinite(state, acc.nonfinite)
        known, new = state.losses, acc.losses
        if acc.position_losses is not None:
            known = acc.position_losses
            new = torch.where(known.isfinite(), new, math.inf)  # no loss to compare with: rejected
            comparable = bool(known.isfinite().any(1).all())
        else:
            comparable = state.epoch == 0 or set(acc.clients) == set(state.clients)
        if not comparable:
            state = state._replace(clients=())  # nothing moves, and the next exchange asks for both
            return state, self._metrics(state)
        flock = as_flock(state)
        advance(self.rule, words_of(state), state.epoch, flock, known.numpy(), new.numpy())
        state = with_flock(state, flock, 1)._replace(clients=acc.clients, samples=acc.samples)
        return state, self._metrics(state)

    def shortcut(
        self, task: Task, state: SwarmState, data: Mapping[int, Data], legs: int, threads: int
    ) -> tuple[SwarmState, Metrics] | None:
        """See `Method`."""
        if kind_of(task) == "sampled" or set(data) != set(state.clients):
            return None
        lands = [landscape_of(task, held, self.loss) for held in data.values()]
        flock, strange = as_flock(state), np.zeros(len(lands), np.bool_)
        if kind_of(task) == "quadratic":
            factors = np.stack([land.factor for land in lands if isinstance(land, Quadratic)])
            descend(self.rule, words_of(state), state.epoch, legs, flock, factors, strange)
        else:
            counts = np.array([held.count for held in data.values()])
            for epoch in range(state.epoch, state.epoch + legs):
                total = candidate_losses(lands, flock, strange, counts, threads)
                advance(self.rule, words_of(state), epoch, flock, flock.losses, total)
        named = [client for client, odd in zip(data, strange, strict=True) if odd]
        state = with_nonfinite(with_flock(state, flock, legs), named)
        return state, self._metrics(state)

    def model(self, state: SwarmState) -> Weights:
        """See `Method`. The best particle of each problem."""
        problems = torch.arange(len(state.losses))
        best = state.particles.permute(1, 2, 0)[problems, state.losses.argmin(1)]
        params = unpacked(best, state.shapes)
        return Weights({name: value.clone() for name, value in params.items()}, {})

    def _metrics(self, state: SwarmState) -> Metrics:
        """Mean losses per sample over the problems, and the loss of each problem if there are several."""
        best = state.losses.min(1).values / (state.samples or math.nan)
        metrics: dict[str, Any] = {"best_loss": float(best.mean()), **self.own_metrics(state)}
        metrics |= {"problem_losses": best.tolist()} if len(best) > 1 else {}
        return metrics | ({"nonfinite_from": list(state.nonfinite)} if state.nonfinite else {})

    def own_metrics(self, state: SwarmState) -> Metrics:
        """Metrics of the method besides the best loss."""
        return {}

    # ---- client

    def client_update(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """See `Method`."""
        land = landscape_of(task, data, self.loss)
        asked = isinstance(message.positions, Tensor)
        old = land.losses(message.positions) if asked else ()
        return memory, Reply(SwarmReply(land.losses(message.candidates), old), data.weight, {})


def _sum(total: Tensor | None, losses: Tensor) -> Tensor:
    return losses if total is None else total + losses
