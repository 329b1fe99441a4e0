"""Further attempts of transactions in flight: dearer ones, and self-transfers that free a nonce.

`strategies` is what a round does with its stuck transactions, `fee_bumper` replaces them,
`canceller` frees the nonces of bytes that nodes refuse for good, and `attempt_signing` has them
signed beside the rounds.
"""
