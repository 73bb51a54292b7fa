"""The engines, by name."""

from shoal.engines.local import LocalEngine

__all__ = ["LocalEngine"]
