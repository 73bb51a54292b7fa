"""The audit reads what is really uploaded."""

from audit.upload import spec_of

import shoal
from shoal.audit.wiretap import first_round


def test_what_travelled_is_what_the_run_recorded():
    spec = spec_of("genefl:gamma=4", images=6)
    _, victims = first_round(spec)
    (record,) = shoal.run(spec).records
    sent = [name for victim in victims for name in victim.uploads[0].update]
    assert {name: sent.count(name) for name in sent} == record["layers"]
    told = sum(victim.uploads[0].bytes_up for victim in victims)
    assert told < record["bytes_up"]  # which has the signatures too


def test_the_bytes_are_those_of_the_run():
    spec = spec_of("fedavg+uniform:bits=4", images=3)
    _, victims = first_round(spec)
    assert sum(victim.uploads[0].bytes_up for victim in victims) == shoal.run(spec).bytes_up


def test_a_client_holds_what_the_options_say_and_classes_take_turns():
    _, victims = first_round(spec_of(images=3, samples=5))
    labels = [label for victim in victims for label in victim.data.all_y.tolist()]
    assert labels == [*range(10), *range(5)]


def test_who_sends_nothing_is_heard_of_nothing():
    _, victims = first_round(spec_of("local", images=2))
    assert all(victim.replied and not victim.uploads[0].update for victim in victims)
