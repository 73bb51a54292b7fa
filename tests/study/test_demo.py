"""The demo: its specs resolve, and its page and picture show all five systems."""

from shoal.report.demo_page import NAMES, DemoScene, demo_page, demo_picture
from shoal.report.runs import RunView
from shoal.study.demo import CONTESTS, SEEDS, jobs


def test_every_scene_has_fedavg_and_one_system():
    planned = jobs(rounds=1)
    assert len(planned) == 2 * len(CONTESTS) * len(SEEDS)
    systems = [contest.methods[1].split(":")[0] for contest in CONTESTS]
    assert set(systems) | {"fedavg"} == set(NAMES)
    assert all(contest.methods[0] == "fedavg" for contest in CONTESTS)
    assert {job.spec.method_name for _, _, job in planned.values()} == {"fedavg", *systems}


def test_the_page_and_the_picture():
    def view(label, seed):
        cost = {"bytes_up": 5, "bytes_down": 5, "seconds": 1.0, "virtual_seconds": 2.0}
        rounds = [
            {"round": r, "accuracy": 0.1 * r, "mean_client_accuracy": 0.1 * r, **cost} for r in (1, 2, 3)
        ]
        took = {"bytes_up": 20 if label == "fedavg" else 5, "virtual_seconds": 6.0}
        summary = {"final_accuracy": 0.3, "mean_client_accuracy": 0.4, "total_seconds": 3.0, **took}
        return RunView(label, {"seed": seed}, rounds, summary)

    scenes = [
        DemoScene(
            contest.unlike,
            contest.title,
            contest.story,
            contest.methods[1].split(":")[0],
            [view(label.split(":")[0], seed) for label in contest.methods for seed in SEEDS],
            contest.metric,
            contest.against,
            contest.columns,
        )
        for contest in CONTESTS
    ]
    page = demo_page(scenes)
    for contest in CONTESTS:
        assert contest.title in page
    assert all(name in page for name in NAMES.values())
    assert page.count("<svg") == 5
    assert "FedAvg 40.0 %, 25 % of its upload" in page
    assert "FedAvg 30.0 %, 100 % of its time" in page
    assert len(demo_picture(scenes).axes) == 6
