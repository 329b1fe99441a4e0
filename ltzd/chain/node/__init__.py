"""One Ethereum node over JSON-RPC.

`node` chooses a node and publishes; `typed_calls` has the reads, and `answers` what their answers
mean. `rpc` and `ws_rpc` are clients over HTTP and WebSocket; `sending` cuts their requests to what
the node accepts, by the `learned_limits` that its `refusals` teach. `publish_outcomes` classifies
the error texts of `eth_sendRawTransaction`, and `bloom` reads the logs bloom of a block header.
Begin with `node.py`.
"""
