"""Fixtures of this folder: `node` is the tester chain and anvil in turn."""

from tests.support.chain.either_chain import both_chains, node, node_mined_by_hand

__all__ = ["both_chains", "node", "node_mined_by_hand"]
