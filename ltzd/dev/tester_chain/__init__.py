"""An Ethereum dev chain in memory: eth-tester's py-evm behind a JSON-RPC server.

The server adds what eth-tester lacks: a pool ordered by nonce, orphaned blocks, logs by block hash,
reorgs, and the anvil methods that tools use. `chain` ties the parts together: `pool` holds
transactions, `miner` decides when blocks are mined, `execution` runs them, `block_tree` stores
them, and `json_rpc` serves all of it. Begin with `chain`.
"""

from ltzd.dev.tester_chain.json_rpc.server import DEFAULT_CHAIN_ID, main, running, serve

__all__ = ["DEFAULT_CHAIN_ID", "main", "running", "serve"]
