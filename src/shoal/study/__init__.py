"""Studies of many runs: comparisons, the arena of attacks and defences, reproductions of papers."""
