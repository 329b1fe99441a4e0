"""The JSON-RPC methods, one module per subject; importing a module adds its methods to METHODS."""

from ltzd.dev.tester_chain.json_rpc.method_table import METHODS
from ltzd.dev.tester_chain.json_rpc.methods import (  # noqa: F401 - each adds its own methods
    access_lists,
    accounts,
    blocks,
    calls,
    cheats,
    fees,
    logs,
    network,
    proofs,
    reorgs,
    signing,
    simulations,
    state_dumps,
    sync_sending,
    time_and_mining,
    transactions,
)

__all__ = ["METHODS"]
