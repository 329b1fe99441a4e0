"""JSON-RPC nodes, contract encoding and signing."""
