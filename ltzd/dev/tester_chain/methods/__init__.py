"""The JSON-RPC methods, one module per subject; importing them fills the table."""

from ltzd.dev.tester_chain.methods import (  # noqa: F401 - each enters itself
    accounts,
    blocks,
    calls,
    cheats,
    fees,
    logs,
    network,
    reorgs,
    time_and_mining,
    transactions,
)
from ltzd.dev.tester_chain.node import METHODS

__all__ = ["METHODS"]
