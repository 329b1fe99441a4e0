"""`ltzd restore …`: compares a restored or promoted database with the chain, and makes it fit.

`commands` has the names and options, `check` and `apply` run them, and `views` shows the outcome.
"""
