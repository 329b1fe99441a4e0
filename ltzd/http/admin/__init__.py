"""The admin server, on a port of its own: liveness, readiness, status and metrics.

`handlers.py` has the endpoints, `answers.py` their JSON, and `measuring.py` the gauges.
"""
