"""Readers for published file formats, which return arrays of bytes."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from shoal.core.errors import SpecError

_PIXELS = 3 * 32 * 32
MOST_AXES = 4  # of an idx file
LARGEST_IDX = 2**31  # bytes; the largest known file, EMNIST's, has half a billion


def _damaged(path: Path, why: str) -> SpecError:
    return SpecError(f"{path} is damaged: {why}; remove it to download it again")


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped idx file of bytes (the format of MNIST) into an array."""
    try:
        with gzip.open(path) as file:
            head = file.read(4)
            if head[:3] != b"\0\0\x08":  # two zeros, then the type code of unsigned bytes
                raise _damaged(path, f"it starts with {head[:3].hex()}, not with 000008 as idx files do")
            axes = file.read(4 * head[3]) if 0 < head[3] <= MOST_AXES else b""
            if len(axes) != 4 * head[3] or not axes:
                raise _damaged(path, f"its header says {head[3]} axes, and names {len(axes) // 4}")
            shape = tuple(np.frombuffer(axes, ">u4").tolist())
            size = math.prod(shape)
            blob = file.read(min(size, LARGEST_IDX) + 1)  # bounded, whatever it would decompress to
    except (EOFError, IndexError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, str(error)) from None
    if len(blob) != size:
        follow = "more" if len(blob) > size else len(blob)
        raise _damaged(path, f"its header says {shape}, but {follow} bytes follow")
    return np.frombuffer(blob, np.uint8).reshape(shape)


def read_cifar(path: Path, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Read CIFAR's binary records, each `labels` bytes and an image: [n, 3, 32, 32] and [n, labels]."""
    blob = np.fromfile(path, np.uint8)
    if blob.size % (labels + _PIXELS):
        raise _damaged(path, f"{blob.size} bytes are not a multiple of a record's {labels + _PIXELS}")
    records = blob.reshape(-1, labels + _PIXELS)
    return records[:, labels:].reshape(-1, 3, 32, 32), records[:, :labels]


def read_svhn(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read SVHN's cropped digits, a MATLAB file: [n, 3, 32, 32] and [n] labels."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(path)
        images, labels = content["X"], content["y"]
    except (MatReadError, ValueError, KeyError, TypeError, MemoryError, zlib.error, OSError) as error:
        raise _damaged(path, str(error)) from None
    return images.transpose(3, 2, 0, 1), labels.reshape(-1) % 10  # the file labels the digit 0 as 10
