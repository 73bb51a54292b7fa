"""The yardstick is sound: it learns, two processes equal one, and nothing of it stays behind."""

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bench.tiny import tiny

from shoal.bench.plain_pytorch import Plain, Trainer, flatten, initial, keep_memory, plan, shared, visit
from shoal.bench.process_signal import signal_pair
from shoal.bench.workloads import Workload
from shoal.data.bundled import mnist5k
from shoal.data.shards import DealtShards
from shoal.loop import advance, start
from shoal.runs.runner import closing, one_thread

DIGITS = Workload(
    "digits",
    "Real digits",
    {
        "task": {"dataset": "mnist5k", "model": "mlp", "hidden": 32},
        "partition": {"kind": "quantity", "clients": 50, "min_size": 5},
        "selector": {"name": "uniform", "count": 10},
        "method": "fedavg",
        "local": {"lr": 0.1, "batch": 10, "epochs": 1, "momentum": 0.5},
    },
    rounds=8,
)


MADE = {}


def material_of(workload):
    """Made once: to read the digits takes a while."""
    if workload.name not in MADE:
        MADE[workload.name] = workload.material()
    return MADE[workload.name]


def accuracy(loop, dataset):
    with torch.no_grad():
        return float((loop.model()(dataset.x_test).argmax(1) == dataset.y_test).float().mean())


def played(workload, processes, rounds):
    with Plain(material_of(workload), processes) as loop:
        for first in range(0, rounds, 2):
            loop.run(first, 2)
        return loop.model().state_dict()


def test_it_learns():
    dataset = mnist5k()
    with Plain(material_of(DIGITS)) as loop:
        before = accuracy(loop, dataset)
        seconds, samples = loop.run(0, 12)
        after = accuracy(loop, dataset)
    assert before < 0.3
    assert after > 0.75
    material = material_of(DIGITS)
    assert seconds > 0
    assert samples == sum(material.samples(material.cohort(round)) for round in range(12))


def test_two_processes_equal_one():
    one, two = played(DIGITS, 1, 4), played(DIGITS, 2, 4)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)


def test_the_same_bits_every_time():
    first, second = played(DIGITS, 2, 4), played(DIGITS, 2, 4)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_one_round_equals_shoals():
    """With one full batch a client the order of its samples is all the same: so must be the result."""
    table = {**tiny().table, "local": {"lr": 0.1, "batch": 1000, "epochs": 2}}
    workload = replace(tiny(), name="full batches", table=table)
    with one_thread(), closing(workload.spec) as setup:
        progress, _ = advance(setup.federation, start(setup.federation))
    with Plain(material_of(workload)) as loop:
        loop.run(0, 1)
        found = loop.model().state_dict()
    for name, value in setup.federation.method.model(progress.state).params.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


def test_a_plan_is_balanced_and_complete():
    material = material_of(DIGITS)
    parts = plan(material, 0, 2)
    loads = [sum(len(visit.rows) for visit in part) for part in parts]
    largest = max(len(visit.rows) for part in parts for visit in part)
    assert abs(loads[0] - loads[1]) <= largest
    assert sum(loads) == material.samples(material.cohort(0))
    assert sum(visit.share for part in parts for visit in part) == pytest.approx(1)
    assert all(sum(visit.sizes) == len(visit.rows) for part in parts for visit in part)


def test_epochs_do_not_mix():
    material = material_of(tiny())
    made = visit(material, 0, 1.0, material.key.torch())
    count = material.shards.count(0)
    held = sorted(material.shards.indices(0).tolist())
    assert made.sizes == [8, 8, 8, 8, 8] * 2
    assert sorted(made.rows[:count].tolist()) == sorted(made.rows[count:].tolist()) == held
    assert not torch.equal(made.rows[:count], made.rows[count:])


def test_batches_are_full_where_a_model_has_batch_norm():
    """As Shoal's are: of one sample there is no variance. Who holds no more does not train."""
    made = material_of(DIGITS)
    counts = [made.shards.count(client) for client in range(50)]
    client, other = counts.index(next(n for n in counts if n > 10 and n % 10 == 1)), counts.index(min(counts))
    found = visit(made._replace(full=True), client, 1.0, made.key.torch())
    assert found.sizes == [10] * (counts[client] // 10 + 1)
    assert found.rows[counts[client] :].tolist() == found.rows[:9].tolist()
    few = visit(made._replace(full=True, batch=1000), other, 1.0, made.key.torch())
    assert few.sizes == [counts[other]]
    one_and_three = DealtShards(np.arange(4), np.array([0, 1, 4]))
    alone = made._replace(full=True, shards=one_and_three, cohort=lambda round: (0, 1))
    assert [[len(v.rows) for v in part] for part in plan(alone, 0, 1)] == [[3]]
    assert (
        Workload("", "", {**DIGITS.table, "task": {"dataset": "digits", "model": "resnet18"}}, 1)
        .material()
        .full
    )


def test_momentum_is_that_of_torch():
    material = material_of(DIGITS)
    module, twin = initial(material), initial(material)
    flat = flatten(module)
    weights, total = flat.clone(), torch.empty_like(flat)
    made = visit(material, 0, 1.0, material.key.torch())
    with one_thread():
        Trainer(material, module, flat, weights).train([made], total)
        optimiser = torch.optim.SGD(twin.parameters(), lr=material.lr, momentum=material.momentum)
        for rows in torch.split(made.rows, made.sizes):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(twin(material.x[rows]), material.y[rows]).backward()
            optimiser.step()
    torch.testing.assert_close(total, flatten(twin), rtol=1e-4, atol=1e-6)


def test_a_flat_vector_holds_all_parameters():
    table = {**tiny().table, "task": {"dataset": "digits", "model": "cnn"}}
    material = replace(tiny(), table=table).material()
    module, twin = initial(material), initial(material)
    flat = flatten(module)
    assert flat.numel() == sum(value.numel() for value in twin.parameters())
    for value, other in zip(module.parameters(), twin.parameters()):
        assert torch.equal(value, other)
    assert module.conv2.weight.is_contiguous(memory_format=torch.channels_last)
    flat.zero_()
    assert all(not value.any() for value in module.parameters())


def test_shared_memory_is_shared():
    values = shared(3)
    child = os.fork()
    if not child:
        values += 1
        os._exit(0)
    os.waitpid(child, 0)
    assert values.tolist() == [1, 1, 1]


def test_a_rope_tells_when_the_other_side_has_died():
    ours, theirs = signal_pair()
    child = os.fork()
    if not child:
        ours.close()
        theirs.notify()
        os._exit(0)
    theirs.close()
    ours.wait()
    os.waitpid(child, 0)
    with pytest.raises(EOFError):
        ours.wait()
    with pytest.raises(EOFError):
        ours.notify()
    ours.close()


def test_the_second_process_ends_with_the_first():
    ready, told = os.pipe()
    child = os.fork()
    if not child:  # a first process that is killed in the middle of things
        loop = Plain(material_of(tiny()))
        os.write(told, str(loop._process.pid).encode())
        time.sleep(60)
        os._exit(0)
    second = int(os.read(ready, 20))
    os.kill(child, 9)
    os.waitpid(child, 0)
    status = Path(f"/proc/{second}/status")
    for _ in range(100):
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.05)
    pytest.fail("it lives on")


def test_memory_can_be_kept():
    assert keep_memory() in (True, False)
