"""A single run, from spec to result."""
