"""A name server for TXT records.

`server` listens and has the control endpoint; `records` is the zone. Begin with `records`.
"""
