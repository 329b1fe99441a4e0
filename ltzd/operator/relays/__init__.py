"""The relay lanes: send the calls that `POST /relay` has accepted, and pay for their gas.

`lane` begins a term; `signer` signs queued relays, each in a transaction of its own.
"""
