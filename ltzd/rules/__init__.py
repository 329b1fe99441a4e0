"""All decisions of ltzd, as pure functions: no I/O and no clock.

A surface's rules bear its name: `event_handler`, `relayer`, `constraints`, `site_plugin`,
`payments`, and the module `perk_charges`. `brands` has the brand file, on which most rules depend.
`operator` and `indexer` have the state machines of transactions and of the followed chain. Callers
read the facts, pass the time as data, and carry out the effects that a rule returns.
"""
