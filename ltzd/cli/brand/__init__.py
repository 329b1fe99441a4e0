"""`ltzd brand`: applies brand files, shows brands, rotates their keys, disables and pauses them.

Begin with `commands`, which has the names and options. `lookup` finds the brand that an argument
names.
"""
