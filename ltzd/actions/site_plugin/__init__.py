"""The site plugin's actions (spec 4.4), for users who are logged in at a brand's site.

Begin with `members`, which turns a log-in into a member with a wallet. `check_ins`, `leaderboards`
and `links` are one feature each. `redemptions` claims or buys a perk; `redemption_requests` reads
the chain for it and builds the relay.
"""
