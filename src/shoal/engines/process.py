"""What Shoal asks of the operating system for its processes."""

from __future__ import annotations

import ctypes
import platform
import signal
import sys


def die_with_parent() -> None:
    """End this process with its parent, however that ends."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def keep_freed_memory() -> None:
    """Do not hand the memory of every step back to the kernel, only to fetch it again."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        trim_threshold, top_pad, mmap_threshold = -1, -2, -3
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 2**30)
        library.mallopt(trim_threshold, 2**31 - 1)
        library.mallopt(top_pad, 2**26)
