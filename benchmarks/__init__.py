"""Benchmarks: ratios of ltzd's figures to the machine's limits and to peers.

Each module is one benchmark, except `instance` (the ltzd under test), `load` (the load generator),
`sides`, `resources`, `processes` and `results`, which the benchmarks share. `docs/benchmarks.md`
explains the method. Begin with `__main__`.
"""
