"""Customer events (spec 4.1): records a brand's event and queues the reward it earns.

Begin with `record`, which takes a request from its checks to its answer. `lookups` finds the users
and claims of events that arrive together, `batch_decision` decides on many events without I/O,
`writer` commits them as a batch, and `hash_waiter` waits for the transactions that mint the
rewards. The rules for one event are in `ltzd/rules/event_handler/`.
"""
