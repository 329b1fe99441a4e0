"""Decisions of the lanes: a transaction's states, its fees, what may be signed, who is minted next.

Begin with `transactions`, the state machine of one transaction.
"""
