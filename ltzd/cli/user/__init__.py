"""`ltzd user`: shows, exports and erases what the database holds about one user.

Begin with `commands`, which has the names and options. `lookup` finds the user that an argument
names; `views` prints, and `erase` changes rows.
"""
