"""Several nodes used as one: chosen by height, errors and latency, none of them trusted alone.

`NodePool` owns the nodes; `PoolClient` gives each request to the best of them and fails over;
`PinnedClient` stays with one. `NodeWatch` follows each node's head and checks that it belongs to
the chain. The decisions are pure and lie in `rules/nodes`.
"""
