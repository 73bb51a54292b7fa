"""What a reader finds written in a figure."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from matplotlib.figure import Figure

from shoal.report.canvas import svg


def texts(figure: Figure) -> list[str]:
    """The texts of a figure, by way of its SVG, which must be XML."""
    root = ET.fromstring(svg(figure, "test"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
