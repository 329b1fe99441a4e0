"""The pending block: the pool's transactions, executed after the head.

py-evm is slow, so a read extends the last pending block by the transactions that have arrived
since, for a quarter of a second at most. The block is built anew once a transaction has left
the pool, the head has changed, or the block was begun more than ten seconds of chain time ago.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.execution.block_builder import BlockPlan
from ltzd.dev.tester_chain.execution.evm import Evm
from ltzd.dev.tester_chain.pool import TransactionPool
from ltzd.dev.tester_chain.worker import WorkerThreads

_SECONDS_AT_MOST: Final = 0.25
_CLOCK_SECONDS_AT_MOST: Final = 10


class PendingBlocks:
    def __init__(
        self,
        evm: Evm,
        pool: TransactionPool,
        threads: WorkerThreads,
        next_plan: Callable[[float], BlockPlan],
    ) -> None:
        self._evm = evm
        self._pool = pool
        self._threads = threads
        self._next_plan = next_plan
        self._lock = asyncio.Lock()
        self._block: MinedBlock | None = None
        self._basis: object = None
        self._began_at = 0

    async def block(self) -> MinedBlock:
        async with self._lock:
            plan = self._next_plan(_SECONDS_AT_MOST)
            begun = self._begun(plan)
            if begun is not None:
                included = {transaction.hash for transaction in begun.transactions}
                rest = [each for each in plan.transactions if each.hash not in included]
                if not rest and begun.timestamp == plan.timestamp:
                    return begun
                plan = replace(plan, transactions=rest)
            basis = self._basis_of(plan)
            block = await self._threads.run(partial(self._evm.build_pending, plan, begun))
            if begun is None:
                self._began_at = plan.timestamp
            self._basis, self._block = basis, block
            return block

    def _begun(self, plan: BlockPlan) -> MinedBlock | None:
        age = plan.timestamp - self._began_at
        is_fresh = self._basis == self._basis_of(plan) and 0 <= age <= _CLOCK_SECONDS_AT_MOST
        return self._block if is_fresh else None

    def _basis_of(self, plan: BlockPlan) -> object:
        """The facts of a block that later transactions leave as they are."""
        settings = replace(plan, transactions=(), timestamp=0)
        return settings, plan.parent.state_root, self._pool.removals
