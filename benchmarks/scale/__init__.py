"""Benchmarks of several processes of one role beside one: how much a further process brings."""
