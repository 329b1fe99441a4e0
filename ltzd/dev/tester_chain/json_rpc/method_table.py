"""The table of JSON-RPC methods, and the context that their handlers receive."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from ltzd.dev.tester_chain.chain import TesterChain
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.json_rpc.filters import Filters
from ltzd.dev.tester_chain.json_rpc.params import BlockChoice, Params
from ltzd.dev.tester_chain.miner import Miner


class MethodContext(msgspec.Struct, frozen=True):
    chain: TesterChain
    miner: Miner
    filters: Filters

    async def block(self, choice: BlockChoice) -> MinedBlock:
        """The chosen block; "pending" is built from the pool. Raises JsonRpcError if unknown."""
        if choice.is_pending:
            return await self.chain.pending_block()
        return choice.existing(self.chain.block_tree)


Handler = Callable[[MethodContext, Params], Awaitable[object]]


class RpcMethod(msgspec.Struct, frozen=True):
    handle: Handler
    params_at_most: int


METHODS: Final[dict[str, RpcMethod]] = {}


def method(*names: str, params_at_most: int = 0) -> Callable[[Handler], Handler]:
    """Register a handler under its names; more parameters are refused, as in geth."""

    def register(handle: Handler) -> Handler:
        METHODS.update(dict.fromkeys(names, RpcMethod(handle, params_at_most)))
        return handle

    return register
