"""The lanes: each signs, publishes and follows the transactions of one wallet.

`lane` has what all lanes share: one process at a time serves a wallet, in terms that begin with
the wallet's lease. `mints` has the lanes that mint queued rewards, `relays` the lanes that send
users' relays. During a term the `publisher` signs what is due and hands bytes to the node, and the
`monitor` follows them to finality, together with the `fee_bumper` and the `canceller`. What
happens to a transaction is decided in `rules/operator/transactions.py`. `fleet` begins and ends the
lanes of a process as wallets come and go. `retired` watches a wallet whose key is lost or stolen,
and `treasury` fills the other wallets. Begin with `lane`.
"""
