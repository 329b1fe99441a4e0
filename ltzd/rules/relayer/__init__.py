"""The rules of the relayer (spec 4.2): which calls the operator sends for a user, and how often.

Begin with `allowed_calls`, the table of functions that may be relayed, and `calls`, the records of
a relay from the request to its outcome. `limits` and `gas_budgets` bound what one user and all
users together may spend, `admission` decides on a relay that is about to be written, and `states`
is the state machine of a relay's row. Everything here is pure: no I/O, and time arrives as data.
"""
