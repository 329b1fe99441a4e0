"""Relays: calls that users ask the operator to send, and the gas they cost.

`relays` holds each relay from its admission to its outcome; `gas_budgets` adds up a day's gas by
identity. Begin with `relays.py`.
"""
