"""`ltzd event`: shows an event with its reward and transactions, and retries a failed reward.

Begin with `commands`, which has the names and options. `lookup` finds the event that an argument
names.
"""
