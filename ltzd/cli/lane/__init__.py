"""`ltzd lane …`: shows the lanes of the operator's wallets, and pauses and resumes them by hand.

Begin with `commands`, which has the names and options.
"""
