"""Users and their wallets, for every action that needs one.

`identity_provider` is the interface to the service that keeps the wallets and issues tokens.
`custodial_wallets` implements it inside ltzd, and `custodial_signing` signs with the keys.
`token_auth` authenticates a token's user, `registration` finds or creates the user of an e-mail
address, and `wallet_migration` moves an address to the wallet of the person who has proven it.
"""
