"""Purchase constraints: the results of their evaluations, and the accounts that claims used.

`results` keeps what constraints answered for wallets until it expires or is invalidated.
`chat_claims` counts the claims that an account of the chat platform was accepted for. Begin with
`results.py`.
"""
