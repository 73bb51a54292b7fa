"""A workload that is over in a blink, for contestants in processes of their own: `bench.tiny:tiny`."""

from shoal.bench.workloads import Workload


def tiny() -> Workload:
    table = {
        "task": {"dataset": "toy:blobs", "model": "toy:net"},
        "partition": {"kind": "iid", "clients": 8},
        "selector": {"name": "uniform", "count": 4},
        "method": "fedavg",
        "local": {"lr": 0.1, "batch": 8, "epochs": 2},
    }
    return Workload("tiny", "Blobs", table, rounds=2)
