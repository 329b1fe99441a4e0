"""Users, their wallets, and the accounts that lead to them.

`users` maps e-mail addresses to wallets, `pregenerations` OAuth accounts to wallets, and
`custodial_users` holds the users whose keys ltzd keeps. Begin with `users.py`.
"""
