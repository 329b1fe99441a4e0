"""The site plugin's REST API, spec 4.4, and `/site-links`, where wallet owners make its links.

Begin in `handlers.py`: check-ins, redemptions, milestones, links and the leaderboard of a brand's
own site, whose users are logged in there. `errors.py` has the error codes of spec 7.5, and
`log_in_limit.py` the limit of failed log-ins. `links.py` and its models and operations are the
endpoints at the root, which the owner of a wallet calls with an access token.
"""
