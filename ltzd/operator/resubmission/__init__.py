"""Further attempts of transactions in flight that are not mined by themselves.

`fee_bumper` replaces what is too cheap by dearer attempts, `canceller` frees the nonces of bytes
that nodes refuse for good, `requests` does either for a person, and `attempt_signing` has it signed
beside the rounds. `resubmission` puts the first two together, or does without the key.
"""
