"""Keeps a lane from signing while the database may not know all that its wallet has done.

A promoted replica, or a restored backup, may lack signed transactions that are mined or pending.
Then the lane signs nothing new until the nodes' nonces have agreed with the database for a while,
and the index has read every block up to the head of that moment, so that lost mints are marked on
their rewards. Stored bytes are published and watched meanwhile. If something else signs with the
wallet's key, the lane signs nothing at all until a person has looked into it (`ltzd lane adopt`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from ltzd.chain.node.view import ChainView
from ltzd.concurrency.outages import Outage
from ltzd.errors import NodeUnavailable
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.policy import COMPARING, FOREIGN_USE, Stopped
from ltzd.operator.wallet_nonces import read_histories
from ltzd.rules.operator import wallet_history
from ltzd.rules.operator.evidence import NonceUse
from ltzd.rules.operator.wallet_history import WalletHistory
from ltzd.store.database import Connection, session
from ltzd.store.indexer import chains
from ltzd.store.operator import restore
from ltzd.store.operator.restore import LaneRecord
from ltzd.values import checksummed, hex_of

log = structlog.get_logger()


class LaneFence:
    """`on_open` is called when new work may be signed after all.

    A lane that never `signs` is left alone. `check_references` raises Stopped if the chain has
    references that the database lacks.
    """

    def __init__(
        self,
        context: LaneContext,
        check_references: Callable[[], Awaitable[object]],
        on_open: Callable[[], None],
        *,
        signs: bool = True,
    ) -> None:
        self._context = context
        self._check_references = check_references
        self._on_open = on_open
        self._signs = signs
        self._timeline = ""
        self._is_proven = self._is_suspected = False
        self._is_disputed = False
        self.obstacle: str | None = COMPARING
        """The reason why no new work may be signed, or None while it may."""
        self.refusal: str | None = None
        """The words that tell a person what to do before anything is signed, or None."""

    async def load(self, connection: Connection) -> None:
        """Read the lane's row, and decide whether its state must be compared with the chain."""
        if not self._signs:
            self.obstacle = None
            return
        record = await self._record(connection)
        self._timeline = await restore.database_history(connection)
        if record.foreign_use is not None:
            self._is_proven = True
            self._close(record.foreign_use)
        elif record.timeline == self._timeline:
            self.obstacle = None
        elif record.timeline is None:
            await restore.set_timeline(connection, self._context.lane, self._timeline)
            self.obstacle = None
        else:
            log.warning(
                "lane.comparing",
                kind=self._context.lane.kind,
                before=record.timeline,
                now=self._timeline,
            )

    async def run(self) -> None:
        """Compare with the chain if needed, then watch the nonce. Raises Stopped, LaneLost."""
        pauses = self._context.policy.pauses
        if self.obstacle == COMPARING:
            await self._compare()
        while self._signs:
            await asyncio.sleep(pauses.wallet_watch)
            await self._watch()

    async def found_foreign_use(self, use: NonceUse, nonce: int) -> None:
        """Close the lane, because the wallet's key has signed a transaction that is not the lane's.

        Does nothing for a nonce that a person has accounted for. Raises LaneLost.
        """
        if self._is_proven or not self._signs:
            return
        async with session(self._context.pool) as connection:
            record = await self._record(connection)
            if nonce < record.resumed_nonce:
                return
            proof = (
                f"transaction {hex_of(use.hash)} in block {use.block_number} has the wallet's "
                f"nonce {nonce}"
            )
            await restore.mark_foreign_use(connection, self._context.lane, proof)
        self._is_proven, self._is_suspected = True, False
        self._close(proof)

    # Comparing

    async def _compare(self) -> None:
        """Wait until no transaction that the database lacks can still be mined unnoticed."""
        pauses, clock = self._context.policy.pauses, self._context.clock
        begun, heads = clock(), 0
        outage = Outage("lane.comparing_waits", "lane.comparing_continues", clock)
        while True:
            try:
                histories = await read_histories(self._context.node, self._context.lane.wallet)
                async with session(self._context.pool) as connection:
                    record = await self._record(connection)
                outage.over(kind=self._context.lane.kind)
                is_settled = self._agrees(histories, record, clock() - begun)
                if clock() - begun >= pauses.comparing and is_settled:
                    # Each block up to this head may hold mints that the database lacks.
                    heads = heads or max(history.head for history in histories)
                    if await self._is_indexed(heads):
                        await self._check_references()
                        await self._open()
                        return
            except NodeUnavailable as error:
                outage.failed(error.message, kind=self._context.lane.kind)
            await asyncio.sleep(min(self._context.policy.poll_seconds, pauses.comparing))

    def _agrees(
        self, histories: list[WalletHistory], record: LaneRecord, waited_seconds: float
    ) -> bool:
        """Whether all nonces up to the lane's are accounted for.

        Raises Stopped if all nodes show more than the database knows, or if some do when the wait
        ends, and are not outvoted.
        """
        ahead = wallet_history.ahead_of(histories, record.next_nonce)
        is_over = waited_seconds >= self._context.policy.pauses.comparing
        if len(ahead) == len(histories):
            raise self._lost_commits(ahead, record, "has signed")
        if ahead and is_over:
            shown = f"{len(ahead)} of {len(histories)} nodes"
            if not wallet_history.are_outvoted(ahead, histories):
                verb = "shows" if len(ahead) == 1 else "show"
                raise self._lost_commits(ahead, record, f"has, as {shown} {verb}, signed")
            self._report_dispute(wallet_history.next_free(ahead), record.next_nonce)
        has_passed = not ahead or is_over
        return has_passed and wallet_history.prevailing_used(histories) >= record.resumed_nonce

    def _report_dispute(self, claimed: int, stored: int) -> None:
        if not self._is_disputed:
            kind = self._context.lane.kind
            log.error("lane.nonces_disputed", kind=kind, claimed=claimed, stored=stored)
        self._is_disputed = True

    def _lost_commits(
        self, ahead: Sequence[WalletHistory], record: LaneRecord, has_signed: str
    ) -> Stopped:
        lane = self._context.lane
        return Stopped(
            f"The {lane.kind} wallet {checksummed(lane.wallet)} {has_signed} transactions up to "
            f"nonce {wallet_history.next_free(ahead) - 1}, mined or pending, and the database "
            f"knows {record.next_nonce} nonces: it has lost its last commits, or is an old "
            "copy. `ltzd restore check` compares the two and says what to do"
        )

    async def _is_indexed(self, number: int) -> bool:
        async with session(self._context.pool) as connection:
            cursor = await chains.cursor(connection, self._context.lane.chain_id)
        return cursor.number >= number

    async def _open(self) -> None:
        async with session(self._context.pool) as connection:
            await restore.set_timeline(connection, self._context.lane, self._timeline)
        log.info("lane.compared", kind=self._context.lane.kind, history=self._timeline)
        if self._is_proven:
            return  # The monitor has found a foreign transaction meanwhile.
        self.obstacle = None
        self._on_open()

    # Watching

    async def _watch(self) -> None:
        """Compare the nonce that all nodes have seen used with the database's next one.

        A node's word is no proof: the lane opens again if the nodes take it back.
        """
        lane = self._context.lane
        try:
            view = await ChainView.newest(self._context.node)
            used = await view.nonce(lane.wallet)
            async with session(self._context.pool) as connection:
                record = await self._record(connection)
            if used > record.next_nonce:
                for other in view.node.others():
                    used = min(used, await (await ChainView.newest(other)).nonce(lane.wallet))
        except NodeUnavailable:
            return
        if used > record.next_nonce and self.obstacle is None:
            self._is_suspected = True
            self._close(
                f"the wallet has used {used} nonces on chain, and the lane has signed "
                f"{record.next_nonce}"
            )
        elif used <= record.next_nonce and self._is_suspected:
            self._is_suspected, self.obstacle, self.refusal = False, None, None
            log.warning("lane.open_again", kind=lane.kind)
            self._on_open()

    async def _record(self, connection: Connection) -> LaneRecord:
        lane = self._context.lane
        record = await restore.find_lane(connection, lane.chain_id, lane.wallet)
        assert record is not None, "the term began with this row"
        return record

    def _close(self, proof: str) -> None:
        lane = self._context.lane
        wallet = checksummed(lane.wallet)
        self.obstacle = FOREIGN_USE
        self.refusal = (
            f"Something else signs with the key of the {lane.kind} wallet {wallet}: {proof}. "
            "Accepted work is kept and waits. Stop the other program, then run `ltzd lane adopt "
            f"{wallet}`; or, if the key is stolen, give ltzd another wallet and run `ltzd wallet "
            f"retire {wallet} --stolen`"
        )
        log.critical("lane.foreign_use", kind=lane.kind, wallet=wallet, reason=self.refusal)
