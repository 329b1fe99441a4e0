"""Webhooks to brands: rows inserted with the fact that they announce, then delivered.

`queue` claims due webhooks and writes the outcomes of attempts, `bodies` renders them from the
facts, and `records` lists and replays them for an operator. Begin with `queue.py`.
"""
