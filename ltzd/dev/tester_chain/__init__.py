"""A dev chain in memory: eth-tester's py-evm behind a JSON-RPC server of our own.

It adds what eth-tester lacks: a pool ordered by nonce, orphaned blocks, logs by block hash, reorgs
and the methods of anvil that tools use.
"""

from ltzd.dev.tester_chain.server import DEFAULT_CHAIN_ID, main, running, serve

__all__ = ["DEFAULT_CHAIN_ID", "main", "running", "serve"]
