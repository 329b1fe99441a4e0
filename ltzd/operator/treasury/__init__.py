"""The treasury lane: fills the operator's other wallets when their balance is below its floor.

`lane` begins a term, `signer` decides and signs one top-up at a time. The decision is in
`rules/operator/top_ups.py`, the bounds are enforced in `store/operator/top_ups.py`.
"""
