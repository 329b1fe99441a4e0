"""Further attempts of transactions in flight that are not mined by themselves.

`fee_bumper` replaces what is too cheap by dearer attempts, `canceller` frees the nonces of bytes
that nodes refuse for good, `attempt_signing` has both signed beside the rounds, and `resubmission`
puts them together, or does without the key.
"""
