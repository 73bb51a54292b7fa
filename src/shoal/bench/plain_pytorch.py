"""FedAvg as a good engineer writes it by hand in PyTorch: the baseline that Shoal is compared with.

No framework: a resident model in each of two single-threaded processes, whose parameters are views of one
flat vector; resident data; shared memory for the weights, and for the sum that each process builds. Cohorts
and the order of samples are determined before a stretch is timed, and all arithmetic is in float32. So this
loop has less to do than Shoal, which draws cohorts and orders, averages in float64 and keeps a record.
"""

from __future__ import annotations

import copy
import ctypes
import mmap
import multiprocessing
import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoal.bench.process_signal import SignalEnd, signal_pair
from shoal.bench.workloads import Material
from shoal.models.layers import Dropout
from shoal.runs.runner import one_thread

_MALLOPT = {-3: 1 << 25, -1: 1 << 30, -2: 1 << 26}  # mmap threshold, trim threshold, top pad: see malloc.h


def keep_memory() -> bool:
    """Make the C library keep freed memory for the next step; False if it has no such option.

    Otherwise, glibc returns the activations of every step to the kernel, which has to clear them again.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return False
    done = [mallopt(name, value) for name, value in _MALLOPT.items()]
    return all(done)


class ClientShare(NamedTuple):
    """One client's part in a round."""

    rows: Tensor  # [epochs * count] int64: its rows, in training order
    sizes: list[int]  # of the batches
    share: float  # of the cohort's samples


Round = list[list[ClientShare]]  # one list per process


def plan(material: Material, round: int, processes: int) -> Round:
    """Assign clients to processes: the largest clients first, each to the process with the least load."""
    least = 2 if material.full else 1  # samples: BatchNorm cannot train on a single one
    able = [client for client in material.cohort(round) if material.shards.count(client) >= least]
    cohort = sorted(able, key=material.shards.count, reverse=True)
    whole = sum(material.shards.count(client) for client in cohort)
    generator = material.key.fold("plain", round).torch()
    parts: Round = [[] for _ in range(processes)]
    loads = [0] * processes
    for client in cohort:
        count = material.shards.count(client)
        least = loads.index(min(loads))
        loads[least] += count
        parts[least].append(visit(material, client, count / whole, generator))
    return parts


def visit(material: Material, client: int, share: float, generator: torch.Generator) -> ClientShare:
    """A client's samples, in a new order every epoch. If batches must be full, the first samples repeat."""
    rows = torch.from_numpy(material.shards.indices(client))
    orders = [rows[torch.randperm(len(rows), generator=generator)] for _ in range(material.epochs)]
    batch = min(material.batch, len(rows)) if material.full else material.batch
    full, rest = divmod(len(rows), batch)
    if material.full and rest:
        orders = [torch.cat([order, order[: batch - rest]]) for order in orders]
        full, rest = full + 1, 0
    sizes = [batch] * full + [rest] * (rest > 0)
    return ClientShare(torch.cat(orders), sizes * material.epochs, share)


class Trainer:
    """A resident model that is trained on one client after another."""

    def __init__(self, material: Material, module: nn.Module, flat: Tensor, weights: Tensor) -> None:
        self._material, self._module, self._flat, self._weights = material, module, flat, weights
        self._params = list(module.parameters())
        self._values = [param.detach() for param in self._params]  # the same memory, outside autograd

    def train(self, visits: Sequence[ClientShare], total: Tensor) -> None:
        """Train the clients; `total` becomes the sum of their weights, each times its share."""
        total.zero_()
        for visit in visits:
            self._flat.copy_(self._weights)
            x = torch.split(self._material.x.index_select(0, visit.rows), visit.sizes)
            y = torch.split(self._material.y.index_select(0, visit.rows), visit.sizes)
            self._descend(x, y)
            total.add_(self._flat, alpha=visit.share)

    def _descend(self, x: Sequence[Tensor], y: Sequence[Tensor]) -> None:
        module, params, values = self._module, self._params, self._values
        rate, momentum = self._material.lr, self._material.momentum
        speed: list[Tensor] = []
        for inputs, labels in zip(x, y):
            loss = F.cross_entropy(module(inputs), labels)
            gradients = list(torch.autograd.grad(loss, params))
            if speed:
                torch._foreach_mul_(speed, momentum)
                torch._foreach_add_(speed, gradients)
                gradients = speed
            elif momentum:
                speed = gradients
            torch._foreach_add_(values, gradients, alpha=-rate)
            del loss, gradients  # so that the next step can use their memory


class Plain:
    """The training loop. Use it as a context manager: the second process ends with the block."""

    def __init__(self, material: Material, processes: int = 2) -> None:
        module = initial(material)
        flat = flatten(module)
        self._material, self._module = material, module
        self._weights, self._totals = shared(flat.numel()), [shared(flat.numel()) for _ in range(processes)]
        self._weights.copy_(flat)
        self._worker = Trainer(material, module, flat, self._weights)
        self._orders = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")  # first round, number of rounds
        self._end: SignalEnd | None = None
        if processes == 2:
            self._end, other = signal_pair()
            context = multiprocessing.get_context("fork")
            self._process = context.Process(target=self._help, args=(other,), daemon=True)
            self._process.start()
            other.close()

    def run(self, first: int, rounds: int) -> tuple[float, int]:
        """Run some rounds; returns their seconds and the number of samples trained on."""
        self._orders[0], self._orders[1] = first, rounds
        if self._end:
            self._end.notify()
        with one_thread(), self._noise(first, 0):
            planned = self._plan(first, rounds)
            if self._end:
                self._end.wait()
            started = time.perf_counter()
            for parts in planned:
                self._round(parts)
            seconds = time.perf_counter() - started
        return seconds, sum(len(visit.rows) for parts in planned for part in parts for visit in part)

    def _round(self, parts: Round) -> None:
        if self._end is None:
            self._worker.train(parts[0], self._totals[0])
            self._weights.copy_(self._totals[0])
            return
        self._end.notify()
        self._worker.train(parts[0], self._totals[0])
        self._end.wait()
        torch.add(self._totals[0], self._totals[1], out=self._weights)

    def _help(self, end: SignalEnd) -> None:
        """The main function of the second process, which trains its own part of every cohort."""
        assert self._end is not None
        self._end.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when the first one does
        torch.set_num_threads(1)
        try:
            while True:
                end.wait()
                first, rounds = self._orders[:2]
                with self._noise(first, 1):
                    planned = self._plan(first, rounds)
                    end.notify()
                    for parts in planned:
                        end.wait()
                        self._worker.train(parts[1], self._totals[1])
                        end.notify()
        except EOFError:
            return

    def _plan(self, first: int, rounds: int) -> list[Round]:
        return [plan(self._material, round, len(self._totals)) for round in range(first, first + rounds)]

    def _noise(self, first: int, process: int) -> AbstractContextManager[None]:
        """Seed torch's global generator, from which its dropout draws."""
        return self._material.key.fold("dropout", first, process).seeded()

    def model(self) -> nn.Module:
        """The global model, in evaluation mode."""
        module = copy.deepcopy(self._module).eval()
        flatten(module).copy_(self._weights)
        return module

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._end is None:
            return
        self._end.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def initial(material: Material) -> nn.Module:
    """The model before the first round, ready to be trained."""
    with material.key.fold("init").seeded():
        return own_dropout(material.build()).train()


def own_dropout(module: nn.Module) -> nn.Module:
    """Replace Shoal's dropout, which takes its random numbers as input, by torch's."""
    for name, part in module.named_children():
        setattr(module, name, nn.Dropout(part.p) if isinstance(part, Dropout) else own_dropout(part))
    return module


def flatten(module: nn.Module) -> Tensor:
    """Move the parameters into one vector, and return it.

    Convolution kernels are stored channels last, as the libraries underneath and the pooling layers prefer.
    """
    params = list(module.parameters())
    sizes = [param.numel() for param in params]
    flat = torch.empty(sum(sizes))
    for param, part in zip(params, torch.split(flat, sizes)):
        if param.dim() == 4:
            outer, inner, height, width = param.shape
            place = part.view(outer, height, width, inner).permute(0, 3, 1, 2)
        else:
            place = part.view(param.shape)
        param.data = place.copy_(param.detach())
    return flat


def shared(size: int) -> Tensor:
    """[size] float32 zeros that forked processes share; freed when the last of these ends."""
    return torch.frombuffer(mmap.mmap(-1, 4 * size), dtype=torch.float32)
