"""Decides when blocks are mined: on demand, at an interval, or only by request.

On demand, a block takes every executable transaction, so concurrent senders share blocks. The time
for filling a block is bounded by a share of the interval, so that blocks keep coming when py-evm is
slower than the senders.
"""

import asyncio
import contextlib
from typing import Final

from ltzd.concurrency.clock import loop_time
from ltzd.dev.tester_chain.chain import TesterChain

_DEMAND_SECONDS: Final = 1.0
_SHARE_OF_INTERVAL: Final = 0.8
_CATCH_UP_SECONDS: Final = 2.0


class Miner:
    def __init__(self, chain: TesterChain, block_time: float) -> None:
        self._chain = chain
        self.automine = block_time == 0
        self.interval_seconds = block_time
        self._changed = asyncio.Event()
        self._rounds_begun = 0
        self._rounds_done = 0
        self._round_done = asyncio.Event()

    def set_automine(self, *, enabled: bool) -> None:
        self._set(automine=enabled, interval_seconds=0 if enabled else self.interval_seconds)

    def set_interval(self, seconds: float) -> None:
        """Mine at an interval; zero leaves mining to `evm_mine` alone."""
        self._set(automine=False, interval_seconds=seconds)

    async def catch_up(self) -> None:
        """On demand: waits until what was executable at the call is mined, at most two seconds.

        A transaction that found no room in the block may still wait.
        """
        first = self._rounds_begun + 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                while self.automine and self._rounds_done < first:
                    await self._round_done.wait()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if self.automine:
                await self._mine_on_demand()
            elif self.interval_seconds:
                await self._mine_at_interval(self.interval_seconds)
            else:
                await self._changed.wait()

    async def _mine_on_demand(self) -> None:
        self._chain.work.clear()
        self._rounds_begun += 1
        mined = await self._chain.mine(even_empty=False, seconds_at_most=_DEMAND_SECONDS)
        self._rounds_done = self._rounds_begun
        self._end_round()
        if mined is None:
            await self._chain.work.wait()

    async def _mine_at_interval(self, seconds: float) -> None:
        due = loop_time() + seconds
        while not self._changed.is_set():
            try:
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            except TimeoutError:
                if self._changed.is_set():
                    return
                due = max(due, loop_time() - seconds) + seconds
                await self._chain.mine(
                    even_empty=True, seconds_at_most=seconds * _SHARE_OF_INTERVAL
                )

    def _set(self, *, automine: bool, interval_seconds: float) -> None:
        self.automine, self.interval_seconds = automine, interval_seconds
        self._changed.set()
        self._chain.work.set()
        self._end_round()

    def _end_round(self) -> None:
        done, self._round_done = self._round_done, asyncio.Event()
        done.set()
