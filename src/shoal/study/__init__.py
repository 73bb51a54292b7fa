"""Many runs: comparisons, the arena of attacks and defences, the papers' tables and figures."""
