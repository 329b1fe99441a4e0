"""`ltzd webhooks`: lists webhooks, sends them again, and enables a disabled endpoint.

Begin with `commands`, which has the names and options.
"""
