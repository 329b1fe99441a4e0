"""Faults of an installation: the kinds of conditions, and how facts are judged.

A condition is one thing that is wrong. Rules judge it here alone, and `/readyz`, `/status`,
`ltzd status`, the health endpoint, the metrics and the alerts show it (decision 0035).
"""
