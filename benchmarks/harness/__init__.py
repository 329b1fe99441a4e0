"""Runs measured programs in processes of their own and writes results down.

`sides` runs one side of a benchmark, `load` generates requests, `instance` starts ltzd on anvil,
`results` writes JSON and the lines of docs/benchmarks.md.
"""
