"""Decisions of the lanes: a transaction's states and fees, what may be signed and minted next.

Begin with `transactions`, the state machine of one transaction.
"""
