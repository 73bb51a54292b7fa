import pytest

from shoal.runs.build import Samples, load_dataset, make_task
from shoal.spec import from_table


@pytest.fixture
def toy_regression():
    """A linear regression."""
    spec = from_table({"task": {"dataset": "boston", "model": "linear"}})
    return make_task(spec, Samples.of(load_dataset(spec.task)))
