import pytest

from shoal.audit.plan import UPLOADS, Options, names, plan
from shoal.codecs.low_rank import LowRank
from shoal.core.errors import SpecError
from shoal.privacy.gaussian import GaussianNoise
from shoal.spec import from_table, to_table

TABLE = {
    "rounds": 50,
    "task": {"dataset": "digits", "model": "mlp"},
    "local": {"lr": 0.3, "batch": 7, "epochs": 9},
    "partition": {"clients": 77},
    "selector": {"count": 5},
    "attack": {"name": "sign_flip"},
    "privacy": {"name": "gaussian", "noise": 0.5},
}


def test_the_specs_own_upload_keeps_what_changes_it_and_drops_the_crowd():
    (case,) = plan([], TABLE, ["local.momentum=0.5"], Options(images=4, samples=2, steps=3))
    spec = case.spec
    assert (case.label, spec.rounds, spec.attack, spec.privacy) == ("fedavg", 1, None, GaussianNoise(0.5))
    assert (spec.partition.clients, spec.partition.samples) == (4, 2)
    assert (spec.method.local.batch, spec.method.local.epochs) == (2, 3)
    assert (spec.method.local.lr, spec.method.local.momentum) == (0.3, 0.5)
    assert from_table(to_table(spec)) == spec  # so it can be run again from its file


def test_a_name_may_carry_fields_a_codec_and_noise():
    label = "genefl:gamma=3,budget=0.5+low_rank:rank=0.1+gaussian:noise=0.03"
    (case,) = plan(["fedprox:mu=0.2+low_rank:rank=0.1+gaussian:noise=0.03"], TABLE, [], Options())
    assert (case.spec.method_name, case.spec.codec, case.spec.privacy) == (
        "fedprox",
        LowRank(0.1),
        GaussianNoise(0.03),
    )
    assert names(f"fedavg, {label},fsi") == ["fedavg", label, "fsi"]


def test_named_uploads_have_the_codec_and_noise_that_they_name_only():
    (case,) = plan(["fedavg"], TABLE, [], Options())
    assert case.spec.privacy is None


def test_methods_that_do_not_train_take_no_local_table():
    cases = plan(["fsi", "per_cluster", *UPLOADS], TABLE, [], Options())
    assert [case.label for case in cases] == ["fsi", "per_cluster", *UPLOADS]


@pytest.mark.parametrize(
    ("uploads", "options", "message"),
    [
        (["fedavg+qsdg"], {}, "unknown codec or noise qsdg; did you mean qsgd?"),
        (["fedavgg"], {}, "did you mean fedavg"),
        (["fedavg", "fedavg"], {}, "every upload must be named once"),
        (["fedavg"], {"images": 0}, "--images must be at least 1, got 0"),
        (["fedavg"], {"samples": 65}, "--samples must be at most 64, got 65"),
        (["fedavg"], {"attack": "idgl"}, "unknown attack idgl; did you mean idlg?"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(uploads, options, message):
    with pytest.raises(SpecError) as error:
        plan(uploads, TABLE, [], Options(**options))
    assert message in str(error.value)
