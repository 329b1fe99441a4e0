"""A model of the chain, whose derived tables are computed in plain Python: the index's oracle."""
