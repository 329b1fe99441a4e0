"""The mint lane: one wallet, held by one process at a time, that turns rewards into minted LTZ.

A term begins with the lane's lock and a new epoch, checks that nobody else used the wallet or the
references, publishes again whatever an earlier term left in flight, and then works until the lock
or the database is lost. The next term may be in this process or another one.
"""

import asyncio

import structlog

from ltzd import telemetry
from ltzd.chain import ltz
from ltzd.chain.node import Node
from ltzd.chain.rpc import RpcError
from ltzd.chain.signing import Signer
from ltzd.errors import LostLane, NodeUnavailable, Unavailable
from ltzd.operator.allowance import MintAllowance
from ltzd.operator.book import Book
from ltzd.operator.desk import Desk
from ltzd.operator.minting import Counters, Minter
from ltzd.operator.policy import MINT, LanePolicy, MintTarget, SameProcess, Stopped
from ltzd.operator.publishing import Publisher
from ltzd.operator.purse import Purse
from ltzd.operator.rehearsing import Rehearsal
from ltzd.operator.watching import Watcher
from ltzd.store import lanes, locks, transactions
from ltzd.store.database import Pool, session, transaction
from ltzd.store.lanes import Lane
from ltzd.store.locks import Term
from ltzd.store.signals import BLOCKS, REWARDS, Signals
from ltzd.values import Address, hex_of

log = structlog.get_logger()

_PAUSE_SECONDS = 0.5
_STOPPED_SECONDS = 10.0


class MintLane:
    def __init__(
        self,
        pool: Pool,
        database_url: str,
        node: Node,
        signer: Signer,
        target: MintTarget,
        signals: Signals,
        policy: LanePolicy,
        process: SameProcess | None = None,
    ) -> None:
        self._pool = pool
        self._database_url = database_url
        self._node = node
        self._signer = signer
        self._target = target
        self._policy = policy
        self._process = process or SameProcess()
        self._signals = signals
        self._rewards = signals.bell(REWARDS)
        self._blocks = signals.bell(BLOCKS)
        self._purse: Purse | None = None
        self.is_serving = False
        self.stopped: str | None = None

    @property
    def wallet(self) -> Address:
        return self._signer.address

    @property
    def balance_wei(self) -> int | None:
        return None if self._purse is None else self._purse.balance

    @property
    def is_ready(self) -> bool:
        """Whether the next reward would be signed at once."""
        return self.is_serving and self._purse is not None and self._purse.fees is not None

    async def run(self) -> None:
        """Serve term after term until cancelled; without the lock, stand by."""
        while True:
            # A task of its own: a task group that fails forgets that it was cancelled meanwhile.
            term = asyncio.create_task(self._hold())
            try:
                await asyncio.wait({term})
            except asyncio.CancelledError:
                term.cancel()
                await asyncio.wait({term})
                raise
            term.result()
            await asyncio.sleep(_PAUSE_SECONDS if self.stopped is None else _STOPPED_SECONDS)

    async def _hold(self) -> None:
        """One term, from the lock to its loss."""
        name = f"ltzd lane {self._target.chain_id} {hex_of(self._signer.address)}"
        try:
            async with locks.held(self._database_url, name) as term:
                await self._serve(term)
        except* Stopped as group:
            self.stopped = str(group.exceptions[0])
            log.critical("lane.stopped", reason=self.stopped)
        except* Unavailable as group:
            log.warning("lane.term_over", reason=str(group.exceptions[0]))
        finally:
            self.is_serving = False
            telemetry.LANES_HELD.labels(MINT).set(0)

    async def _serve(self, term: Term) -> None:
        lane, counters = await self._begin()
        desk = Desk(
            self._pool,
            self._node,
            lane,
            self._target,
            self._signer,
            self._policy,
            self._process,
        )
        book = Book(self._pool, lane, self._signals, self._process.on_published)
        await book.load()
        self._purse = purse = Purse(self._node, lane.wallet, self._policy.fees)
        allowance = MintAllowance(self._node, self._target, lane.wallet)
        rehearsal = Rehearsal(desk, is_careful=await self._has_reverted(lane))
        minter = Minter(desk, book, purse, allowance, rehearsal, counters)
        publisher = Publisher(desk, book, minter, self._rewards, self._blocks)
        watcher = Watcher(desk, book, purse, allowance, rehearsal, self._blocks, self._rewards)
        await watcher.judge_mined()  # what stopped the last term stops this one before it signs
        self.is_serving, self.stopped = True, None
        telemetry.LANES_HELD.labels(MINT).set(1)
        log.info("lane.serving", wallet=hex_of(lane.wallet), epoch=lane.epoch, resumed=book.count())
        self._blocks.ring()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(book.run())
                group.create_task(publisher.run())
                group.create_task(watcher.run())
                group.create_task(_until_lost(term))
        finally:
            minter.leave()

    async def _has_reverted(self, lane: Lane) -> bool:
        async with session(self._pool) as connection:
            return await transactions.has_reverted(connection, lane)

    async def _begin(self) -> tuple[Lane, Counters]:
        """Check wallet and references against the chain, then count the epoch up."""
        wallet, chain_id = self._signer.address, self._target.chain_id
        used = await self._node.nonce(wallet, "latest")
        async with session(self._pool) as connection:
            stored = await lanes.next_nonce(connection, chain_id, wallet)
            seq = await lanes.next_seq(connection, chain_id, self._target.ltz)
        if stored is not None and used > stored:
            raise Stopped(
                f"The mint wallet has used {used} nonces on chain, the database knows {stored}: "
                "something else signs with its key, or the database is an old copy"
            )
        first_seq = await self._check_references(seq)
        async with transaction(self._pool) as connection:
            await lanes.start_seqs(connection, chain_id, self._target.ltz, first_seq)
            lane = await lanes.begin_term(connection, chain_id, wallet, MINT, used)
            next_nonce = await lanes.next_nonce(connection, chain_id, wallet)
            next_seq = await lanes.next_seq(connection, chain_id, self._target.ltz)
        assert next_nonce is not None
        assert next_seq is not None
        return lane, Counters(next_nonce, next_seq)

    async def _check_references(self, next_seq: int | None) -> int:
        """The counter, checked: no reference at or above it may be used (contracts.md).

        Without a counter (a new database on a used LTZ) it begins above every used reference.
        """
        if next_seq is None:
            word = 0
            while await self._ref_word(word):
                word += 1
            return word * 256
        word = next_seq // 256
        above = await self._ref_word(word) >> (next_seq % 256)
        if above or await self._ref_word(word + 1):
            raise Stopped(
                f"LTZ has minted references from {next_seq} on, which the database has not "
                "given out: the database is an old copy"
            )
        return next_seq

    async def _ref_word(self, word: int) -> int:
        try:
            return int.from_bytes(
                await self._node.view(self._target.ltz, ltz.ref_word_call(word)), "big"
            )
        except RpcError as error:
            raise NodeUnavailable(f"refWord: {error.message}") from error


async def _until_lost(term: Term) -> None:
    await term.lost.wait()
    raise LostLane("The connection that held the lane's lock is gone")
