"""`ltzd wallet`: adds, drains, retires and shows the operator's wallets, which pay and mint.

Begin with `commands`, which has the names and options. Users' wallets are `ltzd wallets`.
"""
