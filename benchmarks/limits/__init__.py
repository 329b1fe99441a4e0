"""The other sides of the ratios: the machine's limits and the usual web3.py relay loop.

`hello` is Sanic's limit, `inclusion` anvil's, `inserts` PostgreSQL's; `usual_relayer` is the peer.
"""
