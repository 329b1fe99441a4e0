"""WebSockets to nodes, on which `chain.node` makes calls and hears of heads: see `socket`."""
