"""One Ethereum node over JSON-RPC.

`rpc` sends calls and batches over HTTP; `node` turns the answers into typed values and errors.
`publish_outcomes` classifies the error texts of `eth_sendRawTransaction`, and `bloom` reads the
logs bloom of a block header. Begin with `node.py`.
"""
