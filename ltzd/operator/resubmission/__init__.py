"""Further attempts of transactions in flight that are not mined by themselves.

`fee_bumper` replaces attempts whose fee is too low, `canceller` frees the nonces of bytes that
nodes refuse for good, `requests` does either for a person, and `attempt_signing` signs the further
attempts in the background. `resubmission` combines the first two, or works without the key.
"""
