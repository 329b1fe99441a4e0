"""`ltzd event`: lists, follows and shows events with their rewards, sends one, retries a reward.

Begin with `commands`, which has the names and options. `lookup` finds the event that an argument
names.
"""
