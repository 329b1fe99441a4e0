"""The tester chain's JSON-RPC interface over HTTP and WebSocket, in the shapes of geth and anvil.

`server` accepts connections, `protocol` parses calls and looks them up in `method_table`, and
`methods` implements them with `params` (reading arguments) and `objects` (writing results). Begin
with `protocol`.
"""
