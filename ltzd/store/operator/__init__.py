"""The operator's rows: rewards to mint, transactions with their attempts, and the lanes that sign.

`rewards` is the queue, `transactions` holds intents and attempts, `lanes` the wallets with their
nonces and fencing epochs, and `locks` elects one holder of each lane. Begin with `transactions.py`.
"""
