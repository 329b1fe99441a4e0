"""Brands: their configurations, their keys, and the operator's switches.

`configurations` applies brand files and caches them in memory, `keys` creates and rotates keys, and
`records` lists brands and pauses or disables them. `revisions` orders all of these changes. Begin
with `configurations.py`.
"""
