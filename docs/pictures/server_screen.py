"""Draw the screen of a server from its status file.

    python docs/pictures/server_screen.py keys/server/state/status.json docs/pictures/server.png "scaffold, 4 sites" 34

The last number are the seconds since the server's start, which the file does not have.
"""

import io
import json
import sys
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console

from shoal.federation.screen import table_of

COLOURS = {"ready": "#6cc070", "refused": "#e06c6c", "joining": "#d8b455"}
WIDTH, SIZE, MARGIN, HEAD = 104, 16, 18, 2


def main(status, out, title, seconds):
    found = json.loads(Path(status).read_text())
    console = Console(width=WIDTH, file=io.StringIO(), record=True, color_system=None)
    console.print(table_of(title, found, float(seconds)))
    lines = console.export_text().rstrip().splitlines()
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSansMono.ttf"), SIZE)
    wide, high = font.getlength("x"), SIZE + 4
    size = (int(wide * WIDTH) + 2 * MARGIN, high * len(lines) + 2 * MARGIN)
    image = Image.new("RGB", size, "#1d2126")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        for column, letter in enumerate(line):
            place = (MARGIN + column * wide, MARGIN + row * high)
            draw.text(place, letter, font=font, fill="#6b7480" if letter in "━│─┃┏┓┗┛└┘┡┩╇┴┳┼├┤" else "#d7dce2")
        for word, colour in COLOURS.items() if row > HEAD else ():
            if (at := line.find(f" {word} ")) >= 0:
                draw.text((MARGIN + (at + 1) * wide, MARGIN + row * high), word, font=font, fill=colour)
    image.save(out)


main(*sys.argv[1:])
