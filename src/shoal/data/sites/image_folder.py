"""Read folders of images, with one folder per class."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.core.errors import SpecError, one_line
from shoal.data.sites.piece import SiteFile, SitePiece

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_TOGETHER = 256  # images in memory at a time, if they are small
_NUMBERS = 2**24  # numbers in memory at a time, for large images
LABEL = "folder"  # the name of the label column


@dataclass(frozen=True)
class ImageFolder(SiteFile):
    """A folder with one folder of images per class. Pixels become numbers from 0 to 1."""

    path: Path
    size: int = 0  # images are resized to this width and height; 0: they must have equal sizes already
    grey: bool = False

    def pieces(self) -> Iterator[SitePiece]:
        """See `SiteFile`."""
        found = [
            (folder.name, image)
            for folder in sorted(self.path.iterdir())
            if folder.is_dir()
            for image in sorted(folder.iterdir())
            if image.suffix.lower() in ENDINGS
        ]
        if not found:
            raise SpecError(
                f"{self.path} holds no folders with images ({', '.join(ENDINGS[:3])}, ...); "
                "it needs one folder for each class"
            )
        shape = self._pixels(found[0][1]).shape
        together = max(1, min(_TOGETHER, _NUMBERS // max(1, math.prod(shape))))
        for first in range(0, len(found), together):
            some = found[first : first + together]
            arrays = [self._pixels(image, shape, found[0][1]) for _, image in some]
            places = [str(image.relative_to(self.path)) for _, image in some]
            yield SitePiece(self.path, places, {LABEL: [name for name, _ in some]}, np.stack(arrays))

    def _pixels(self, path: Path, shape: tuple[int, ...] = (), like: Path | None = None) -> np.ndarray:
        """The image as [channels, height, width] float32; it must have `shape`, that of the image `like`."""
        from PIL import Image

        try:
            with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
                if shape and not self.size and image.size != shape[:0:-1]:  # before anything is decoded
                    raise SpecError(
                        f"{path} is {image.width} x {image.height} pixels, but {like} is "
                        f"{shape[2]} x {shape[1]}; set task.size = {min(shape[1:])}"
                    )
                shown = image.convert("L" if self.grey else "RGB")
                if self.size:
                    shown = shown.resize((self.size, self.size), Image.Resampling.BILINEAR)
                pixels = np.asarray(shown, np.float32) / 255
        except SpecError:
            raise
        except Exception as error:  # the file may be anything
            raise SpecError(f"{path} cannot be read as an image: {one_line(error)}") from None
        return pixels[None] if self.grey else np.ascontiguousarray(pixels.transpose(2, 0, 1))
