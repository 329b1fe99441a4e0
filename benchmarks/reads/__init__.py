"""Benchmarks of reads: perks, and leaderboards."""
