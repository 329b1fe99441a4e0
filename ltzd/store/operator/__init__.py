"""The operator's rows: rewards to mint, transactions with their attempts, and the lanes that sign.

`rewards` is the queue, `transactions` holds intents and attempts, `settlement` those that are mined
and not final, `lanes` the wallets with their nonces and fencing epochs, and `leases` elects one
holder of each lane. `wallets` and `requests` hold the orders of people. Begin with
`transactions.py`.
"""
