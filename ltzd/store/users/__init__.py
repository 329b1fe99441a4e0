"""Users, their wallets, and the accounts that lead to them.

`users` maps e-mail addresses to wallets, and `registrations` inserts new users. `pregenerations`
maps OAuth accounts to wallets, and `custodial_users` holds the users whose keys ltzd keeps.
`address_proofs` and `erased_addresses` hold addresses without a user, and erased ones. Begin with
`users.py`.
"""
