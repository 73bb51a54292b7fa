"""Process settings that have to be made through the operating system."""

from __future__ import annotations

import ctypes
import platform
import signal
import sys


def die_with_parent() -> None:
    """End this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def keep_freed_memory() -> None:
    """Keep freed memory for the next training step instead of returning it to the operating system."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        trim_threshold, top_pad, mmap_threshold = -1, -2, -3
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 2**30)
        library.mallopt(trim_threshold, 2**31 - 1)
        library.mallopt(top_pad, 2**26)
