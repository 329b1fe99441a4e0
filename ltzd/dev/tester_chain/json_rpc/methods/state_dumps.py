"""anvil_dumpState and anvil_loadState, in anvil's format."""

from ltzd.dev.tester_chain.execution.state_dump import dumped, loader
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import hex_of


@method("anvil_dumpState", "hardhat_dumpState", params_at_most=1)
async def dump_state(context: MethodContext, _: Params) -> str:
    """The accounts after the head; never its blocks, also if the caller wants history."""
    chain = context.chain
    head = chain.block_tree.head
    return hex_of(dumped(chain.state(head), chain.evm.written, head.number))


@method("anvil_loadState", "hardhat_loadState", params_at_most=1)
async def load_state(context: MethodContext, params: Params) -> bool:
    """Set the dump's accounts in the state after the head, and mine nothing."""
    await context.chain.change_state(loader(params.data(0, "state")))
    return True
