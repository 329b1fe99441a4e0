"""The admin server, on a port of its own: liveness, readiness, status and metrics.

All of it is in `handlers.py`.
"""
