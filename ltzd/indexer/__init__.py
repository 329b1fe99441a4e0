"""Follows blocks into the store and undoes reorgs."""
