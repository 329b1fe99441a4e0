"""How much LTZ the mint limit can ever hold, as the chain says it, remembered for a while.

Only to refuse what could never be minted: who cannot be asked in time is not waited for.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from ltzd.chain.ltz import decode_mint_limit, mint_limit_call
from ltzd.chain.node import Node
from ltzd.chain.rpc import RpcError
from ltzd.errors import NodeUnavailable
from ltzd.store import payments
from ltzd.store.database import Pool, session
from ltzd.values import LTZ, Address

log = structlog.get_logger()

_PATIENCE_SECONDS = 1.0
_FRESH_SECONDS = 60.0
_FAILED_SECONDS = 5.0


class MintCapacity:
    """Of the wallet that can hold most."""

    def __init__(
        self,
        pool: Pool,
        node: Node,
        chain_id: int,
        ltz: Address,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._node = node
        self._chain_id = chain_id
        self._ltz = ltz
        self._ticks = ticks
        self._known: int | None = None
        self._until = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def whole_ltz(self) -> int | None:
        """None while nobody mints yet, or the node does not say. Raises DatabaseUnavailable."""
        async with self._one_at_a_time:
            if self._ticks() >= self._until:
                self._known = await self._asked()
                kept = _FAILED_SECONDS if self._known is None else _FRESH_SECONDS
                self._until = self._ticks() + kept
        return self._known

    async def _asked(self) -> int | None:
        async with session(self._pool) as connection:
            wallets = await payments.minters(connection, self._chain_id)
        if not wallets:
            return None
        calls = [(self._ltz, mint_limit_call(wallet)) for wallet in wallets]
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answers = await self._node.views(calls)
            return max(decode_mint_limit(answer)[0] for answer in answers) // LTZ
        except (NodeUnavailable, RpcError, ValueError, TimeoutError) as error:
            log.warning("payments.capacity_unknown", reason=type(error).__name__)
            return None
