from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from report.svg_texts import texts

from shoal.core.errors import SpecError
from shoal.report.partition import partition_picture


def picture(counts: np.ndarray, title: str = "mnist5k, dirichlet (beta = 0.1)") -> Figure:
    return partition_picture(counts, range(len(counts)), len(counts), title)


@pytest.mark.parametrize(("clients", "classes"), [(4, 2), (1, 1), (100, 10), (1000, 100)])
def test_pictures_of_all_sizes(clients, classes):
    counts = np.arange(clients * classes).reshape(clients, classes) % 37
    figure = picture(counts)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=60)
    assert out.getvalue().startswith(b"\x89PNG")
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert len(shown) == (np.count_nonzero(counts) if clients <= 16 else 0)


def test_a_picture_says_what_it_shows():
    counts = np.array([[120, 0], [3, 88], [40, 41], [0, 5000]])
    shown = texts(picture(counts, "heart"))
    assert {"heart", "Client", "Class", "4 clients, 2 classes, 5,292 samples", "5,000"} <= set(shown)
    assert any("square-root" in text for text in shown)
    assert "0" not in [text.get_text() for text in picture(counts).axes[0].texts]


def test_a_sample_is_named_as_one_and_has_its_own_ids():
    shown = texts(partition_picture(np.ones((2, 3), np.int64), (7, 123_456), 10**6, "x"))
    assert "2 of 1,000,000 clients (a fixed random sample), 3 classes, 6 samples" in shown
    assert {"7", "123,456"} <= set(shown)


def test_a_partition_in_which_nobody_holds_anything():
    assert texts(picture(np.zeros((4, 2), np.int64)))


@pytest.mark.parametrize(("counts", "told"), [(np.zeros((4, 0)), "no classes"), (np.zeros(4), "shape")])
def test_what_cannot_be_drawn_is_refused(counts, told):
    with pytest.raises(SpecError, match=told):
        picture(counts)
