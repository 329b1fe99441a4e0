"""Several mint wallets and processes on one database and one fake node.

A process of a test is a `World` with database connections and wake-ups of its own, which ends as
abruptly as a killed process.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from msgspec.structs import replace

from ltzd.chain.signing import Signer, WalletSigner
from ltzd.operator.mints.lane import MintLane
from ltzd.operator.policy import LanePolicy
from ltzd.store.database import open_pool, session
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Address
from tests.support.chain.mint_world import POLICY, World, true
from tests.support.rows.core import MINTER
from tests.support.waiting import until

OTHER_MINTER, THIRD_MINTER = Signer(b"\x0d" * 32), Signer(b"\x0e" * 32)
WALLETS = (MINTER, OTHER_MINTER, THIRD_MINTER)


@asynccontextmanager
async def process(world: World, url: str | None = None) -> AsyncIterator[World]:
    """Another process on the database, which it reaches by `url`; it wakes no other process."""
    pool = await open_pool(url or world.url, open_at_start=0)
    other = World(world.url, pool, world.observer, world.node)
    other.wakeups = WakeupHub(world.url, poll_seconds=0.05)
    try:
        yield other
    finally:
        pool.terminate()


@asynccontextmanager
async def lanes(
    world: World, signers: Sequence[WalletSigner] = WALLETS[:2], policy: LanePolicy = POLICY
) -> AsyncIterator[list[MintLane]]:
    """Runs a lane of each wallet in this process, once all are ready."""
    async with AsyncExitStack() as stack:
        running = []
        for signer in signers:
            world.signer = signer
            running.append(await stack.enter_async_context(world.lane(policy)))
        for lane in running:
            await until(lambda lane=lane: true(lane.is_ready), 20.0)  # type: ignore[misc]
        yield running


async def each_minted_once(world: World) -> None:
    """Each reward is minted once on the canonical chain, and no nonce ever had two contents."""
    assert world.node.minted() == Counter(await world.references())
    calls = defaultdict(set)
    for sent in world.node.sent():
        calls[sent.sender, sent.nonce].add(sent.call)
    assert all(len(contents) == 1 for contents in calls.values())


async def rewards_by_wallet(world: World) -> Counter[Address]:
    """How many rewards each wallet has signed."""
    async with session(world.observer) as connection:
        rows = await connection.fetch(
            "SELECT t.wallet FROM rewards r JOIN transactions t ON t.id = r.transaction_id"
        )
    return Counter(Address(row[0]) for row in rows)


class Fuse:
    """A TCP proxy before PostgreSQL that breaks all connections at a chosen packet of a client.

    The packet is lost, or with `answers_only` it arrives and its answer is lost.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._target = parts.hostname, parts.port or 5432
        self._parts = parts
        self._writers: set[asyncio.StreamWriter] = set()
        self._left: int | None = None
        self._loses_answers = False
        self.is_blown = False
        self.url = ""

    def arm(self, packets: int, *, answers_only: bool) -> None:
        self._left, self._loses_answers = packets, answers_only

    def restore(self) -> None:
        self.is_blown, self._left = False, None

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Fuse"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user, at, _ = self._parts.netloc.rpartition("@")
        netloc = f"{user}{at}127.0.0.1:{port}"
        self.url = urlunsplit(self._parts._replace(netloc=netloc))
        try:
            yield self
        finally:
            server.close()
            self._blow()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_blown:
            writer.close()
            return
        other_reader, other_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, other_writer}
        await asyncio.gather(
            self._requests(reader, other_writer), self._answers(other_reader, writer)
        )

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            if self._left is not None:
                self._left -= 1
                if self._left < 0 and not self._loses_answers:
                    self._blow()
                    return
            writer.write(data)
        writer.close()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            if self._left is not None and self._left < 0:
                self._blow()
                return
            writer.write(data)
        writer.close()

    def _blow(self) -> None:
        self.is_blown = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 20)
    except OSError:
        return b""


SELDOM = replace(POLICY, poll_seconds=5.0)
"""A lane whose packets are those of its signing, since it hardly looks at the chain."""
