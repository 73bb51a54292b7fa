from shoal.bench.checkpoints import measure


def test_checkpoints_are_timed_beside_rounds():
    seen = []
    (row,) = measure(["lr-mnist"], seconds=0.05, watcher=lambda *what: seen.append(what))
    assert seen == [("lr-mnist", "checkpoints")]
    assert row["seconds_per_round"] > 0
    assert row["seconds_per_checkpoint"] > 0
    assert (
        row["share"] < row["share_every_round"]
    )  # the second checkpoint of the default pace is still to come
