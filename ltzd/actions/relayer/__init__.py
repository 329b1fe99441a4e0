"""Relays (spec 4.2): the operator sends a call for a user, if the call is one that it may send.

Begin with `relayer`, which takes a request from its checks to its outcome. The steps have a module
each: `limits`, `simulation` (with `gas_estimates` and `early_simulation`), `admission` into the
relays' table, `waiters` for a relay that another process may send, and `outcomes`. `context` holds
what relays and perk redemptions share. The rules are in `ltzd/rules/relayer/`, the wallets' lanes
in `ltzd/operator/relays/`.
"""
