"""`ltzd deploy`: puts the four contracts on a chain and grants their roles.

`command` has the options; `deployment` validates them and runs `ltzd.chain.deployment`.
"""
