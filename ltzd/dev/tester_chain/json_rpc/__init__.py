"""The tester chain's JSON-RPC interface over HTTP and WebSocket, in the shapes of geth and anvil.

`server` accepts connections, `protocol` parses calls and looks them up in `method_table`, and
`methods` implements them with `params` (reading arguments) and `objects` (writing results).
`subscriptions` and `filters` tell clients of new blocks and logs; `cross_origin` keeps foreign web
pages out. Begin with `protocol`.
"""
