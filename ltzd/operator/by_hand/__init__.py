"""People ask a lane to make a transaction dearer, or to cancel it, while the lane works.

`requests` carries that out. `ltzd/operator/orders.py` follows their pauses.
"""
