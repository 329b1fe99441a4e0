"""Ratios against the machine's limits and against peers; `docs/benchmarks.md` tells the method."""
