"""An HTTP/1.1 client for JSON-RPC: posts a body over connections that stay open.

`answers` reads one answer from a connection's bytes; `client` has the connections.
"""
