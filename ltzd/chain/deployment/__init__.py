"""Deploys the contracts, and sends single transactions of cold wallets.

`plan` decides what is left to do, `executor` carries it out, and `deployed_file` keeps the result.
`cold_wallet` sends one transaction at a person's command, and `agreement` asks several nodes.
Begin with `plan.py`.
"""
