"""Run methods on a Ray cluster of two nodes, and kill one of them in the middle of a round.

python lose_a_ray_node.py SPECS.json        a list of specs; prints a JSON object for each
"""

import json
import os
import sys
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_raylet_start_wait_time_s"] = "600"  # noqa: SIM112

import ray
from ray.cluster_utils import Cluster

import shoal
from shoal.engines.ray_actors import RayActors
from shoal.spec import from_table


def main(path):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    collect, calls = RayActors.collect, []

    def kill_once(self, call):
        if calls and len(calls) == kill_at:
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        calls.append(call.actor)
        return collect(self, call)

    RayActors.collect = kill_once
    for table in json.loads(Path(path).read_text()):
        kill_at = table.pop("kill_at")
        calls.clear()
        nodes = [cluster.add_node(num_cpus=1)]
        cluster.wait_for_nodes()
        result = shoal.run(from_table({**table, "engine": {"name": "ray"}}))
        found = {"sha": result.weights_sha256, "memory": result.memory_sha256, "killed": not nodes}
        print(json.dumps(found | {"up": result.bytes_up, "down": result.bytes_down}), flush=True)
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)
    ray.shutdown()
    cluster.shutdown()


main(sys.argv[1])
