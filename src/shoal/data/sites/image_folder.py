"""Reading folders of images: one folder for each class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.core.errors import SpecError
from shoal.data.sites.piece import SiteFile, SitePiece

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_TOGETHER = 256  # images in memory at a time
LABEL = "folder"  # the name of the label column


@dataclass(frozen=True)
class ImageFolder(SiteFile):
    """A folder with one folder of images for each class. Pixels become numbers from 0 to 1."""

    path: Path
    size: int = 0  # all images are resized to so many pixels each way; 0: they must be equal already
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
        shape: tuple[int, ...] | None = None
        for first in range(0, len(found), _TOGETHER):
            some = found[first : first + _TOGETHER]
            arrays = []
            for _, image in some:
                pixels = self._pixels(image)
                shape = shape or pixels.shape
                if pixels.shape != shape:
                    raise SpecError(
                        f"{image} is {pixels.shape[2]} x {pixels.shape[1]} pixels, but {found[0][1]} is "
                        f"{shape[2]} x {shape[1]}; set task.size = {min(shape[1:])}"
                    )
                arrays.append(pixels)
            places = [str(image.relative_to(self.path)) for _, image in some]
            yield SitePiece(self.path, places, {LABEL: [name for name, _ in some]}, np.stack(arrays))

    def _pixels(self, path: Path) -> np.ndarray:
        """[channels, height, width] float32."""
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as image:
                shown = image.convert("L" if self.grey else "RGB")
                if self.size:
                    shown = shown.resize((self.size, self.size), Image.Resampling.BILINEAR)
                pixels = np.asarray(shown, np.float32) / 255
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise SpecError(f"{path} cannot be read as an image: {error}") from None
        return pixels[None] if self.grey else np.ascontiguousarray(pixels.transpose(2, 0, 1))
