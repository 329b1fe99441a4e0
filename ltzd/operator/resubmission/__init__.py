"""Deals with transactions in flight that are not mined by themselves.

`fee_bumper` replaces what is too cheap by dearer attempts, `canceller` frees the nonces of bytes
that nodes refuse for good, and `resubmission` puts them together, or does without the key.
"""
