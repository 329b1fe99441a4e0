"""The typed calls of `Node`, by what they read.

`blocks` has headers and whole blocks, `logs` the contracts' logs, `receipts` receipts, `accounts`
balances and nonces, `gas_prices` fees, and `executions` calls that are only simulated. All ask
through `requests`, which reads state after one exact block. `ltzd/chain/node/node.py` joins them.
"""
