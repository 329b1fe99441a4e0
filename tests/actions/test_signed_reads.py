"""Signed reads that share round trips, and the order of their refusals."""

import asyncio
from collections.abc import Sequence

import pytest

from ltzd.actions.signed_reads import SignedCaller, SignedReads
from ltzd.errors import DatabaseUnavailable, SignatureRefused
from tests.support.rows.core import BRAND


class Round:
    """Both round trips of a batch; those of the first batch last until `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.is_database_away = False
        self.nonces: list[Sequence[str]] = []
        self.items: list[Sequence[int]] = []
        self.reads: SignedReads[int, int] = SignedReads(self._use_nonces, self._read)

    def begin(self, nonce: str, item: int) -> asyncio.Future[int]:
        return self.reads.begin(SignedCaller(BRAND, nonce), item)

    async def _use_nonces(self, callers: Sequence[SignedCaller]) -> list[bool]:
        before = {nonce for batch in self.nonces for nonce in batch}
        self.nonces.append([caller.nonce for caller in callers])
        await self.go.wait()
        return [caller.nonce not in before for caller in callers]

    async def _read(self, items: Sequence[int]) -> list[int]:
        self.items.append(items)
        if self.is_database_away:
            raise DatabaseUnavailable("gone")
        return [10 * item for item in items]


async def test_reads_share_the_round_trips_after_those_under_way() -> None:
    round_ = Round()
    first = round_.begin("a", 1)
    await asyncio.sleep(0)
    others = [round_.begin("b", 2), round_.begin("c", 3)]
    round_.go.set()
    assert await asyncio.gather(first, *others) == [10, 20, 30]
    assert round_.nonces == [["a"], ["b", "c"]]
    assert round_.items == [[1], [2, 3]]


async def test_both_round_trips_of_a_read_run_at_the_same_time() -> None:
    round_ = Round()
    read = round_.begin("a", 1)
    while not round_.items:  # noqa: ASYNC110 - the nonce is still being used up
        await asyncio.sleep(0)
    assert not read.done()
    round_.go.set()
    assert await read == 10


async def test_a_replay_is_refused_also_while_the_database_is_away() -> None:
    round_ = Round()
    round_.go.set()
    assert await round_.begin("a", 1) == 10
    round_.is_database_away = True
    replayed, unread = round_.begin("a", 1), round_.begin("b", 2)
    with pytest.raises(SignatureRefused):
        await replayed
    with pytest.raises(DatabaseUnavailable):
        await unread
