"""The index's oracles: a model of the chain, whose derived tables are computed in plain Python, and
the contracts themselves after random calls (`random_calls`)."""
