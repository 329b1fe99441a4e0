"""The actions: one class for each thing that a caller may ask of ltzd.

An action reads facts from `store`, `chain` and `providers`, applies `rules`, and writes, and
knows nothing of HTTP. A package bears the name of the surface whose requests it answers; begin with
`event_handler.record` or `relayer.relayer`. `users` finds and authenticates users for all of them,
and the modules here serve one surface each or are shared by several.
"""
