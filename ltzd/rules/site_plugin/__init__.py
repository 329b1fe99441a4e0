"""Rules of the site plugin: check-ins, leaderboards, redemptions, and links to wallets.

`streaks` has check-ins and milestones, `redemptions` the checks and codes of a redeemed perk,
`spending` how much of a wallet a site may spend, `links` the codes that link a wallet's owner to a
member of a site, and `leaderboards` the periods of a ranking.
"""
