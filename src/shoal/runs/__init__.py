"""From a spec to a result: one run."""
