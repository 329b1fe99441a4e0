"""Caches the most LTZ that the contract's mint limit can ever hold.

The capacity serves to refuse rewards that could never be minted. While the node does not answer,
the last answer counts; without one every reward is accepted and waits in the queue if it must.
"""

import asyncio
import time

import structlog

from ltzd.chain.contracts.ltz import MAX_UNITS, decode_mint_limit, mint_limit_call
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.views import ChainViews
from ltzd.concurrency.clock import Clock
from ltzd.errors import NodeUnavailable
from ltzd.store import payments
from ltzd.store.database import Pool, session
from ltzd.values import LTZ, Address

log = structlog.get_logger()

_FRESH_SECONDS = 60.0
_FAILED_SECONDS = 5.0
_REFUSING_SECONDS = 1.0
"""A reward is refused only on an answer this fresh: the limit may have been raised since."""


class MintCapacity:
    """The capacity of the largest limit among the wallets whose mint lanes are being served.

    A node that does not answer within `timeout_seconds` counts as one that is away.
    """

    def __init__(
        self,
        pool: Pool,
        node: Node,
        chain_id: int,
        ltz: Address,
        clock: Clock = time.monotonic,
        timeout_seconds: float = 1.0,
    ) -> None:
        self._pool = pool
        self._views = ChainViews(node)
        self._chain_id = chain_id
        self._ltz = ltz
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._known: int | None = None
        self._asked_at = float("-inf")
        self._until = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def whole_ltz(self) -> int | None:
        """Return the capacity, or None if no lane is served or the node has never answered.

        One caller a minute waits for the node; the others get the cached answer. Raises
        DatabaseUnavailable.
        """
        if self._known is not None and (
            self._one_at_a_time.locked() or self._clock() < self._until
        ):
            return self._known
        async with self._one_at_a_time:
            if self._clock() >= self._until:
                await self._ask()
        return self._known

    async def exceeded_by(self, ltz: int) -> int | None:
        """Return the capacity if `ltz` whole LTZ exceed it, and None otherwise or if it is unknown.

        No reward exceeds a capacity of 0: minting is switched off for a while, and rewards wait.
        Raises DatabaseUnavailable.
        """
        most = await self.whole_ltz()
        if most and ltz > most:
            async with self._one_at_a_time:
                if self._clock() >= self._asked_at + _REFUSING_SECONDS:
                    await self._ask()
            most = self._known
        return most if most and ltz > most else None

    async def _ask(self) -> None:
        answer = await self._answer()
        self._asked_at = self._clock()
        self._until = self._asked_at + (_FAILED_SECONDS if answer is None else _FRESH_SECONDS)
        if answer is not None:
            self._known = answer

    async def _answer(self) -> int | None:
        async with session(self._pool) as connection:
            wallets = await payments.list_mint_wallets(connection, self._chain_id)
        if not wallets:
            return None
        calls = [(self._ltz, mint_limit_call(wallet)) for wallet in wallets]
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answers = await self._views.decide(lambda view: view.views(calls))
            most = max(decode_mint_limit(answer)[0] for answer in answers)
            return min(most, MAX_UNITS) // LTZ
        except (NodeUnavailable, RpcError, ValueError, TimeoutError) as error:
            log.warning("mint_capacity.unknown", reason=type(error).__name__)
            return None
