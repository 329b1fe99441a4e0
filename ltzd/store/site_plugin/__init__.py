"""Site members: their check-ins, leaderboards, links to wallets, and redemptions.

`members` holds who logs in at a brand's site, and `links` the wallets that owners lend them.
`check_ins` and `leaderboard_totals` count; `spending`, `redemptions` and `redemption_payments`
redeem perks. Begin with `members.py`.
"""
