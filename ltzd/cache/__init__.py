"""Rate limits in Redis, which may lose its data at any time: losing it makes limits looser only.

`rate_limits` is the interface. `redis_windows` counts in Redis, and `memory_windows` in this
process while Redis is unreachable or not configured.
"""
