"""Benchmarks of size: several processes of one role beside one, and large tables."""
