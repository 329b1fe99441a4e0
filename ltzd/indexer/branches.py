"""Asks the nodes whether the indexed blocks are still canonical, once a node does not show them.

Nothing is written here: `Branches.rule` returns the node with which to continue, or the fork down
to which blocks must be undone. `rules/indexer/disputes` decides from the nodes' answers, and
`rules/indexer/reorgs` distinguishes a deep reorg from a node that was wiped, is syncing, or follows
another chain.
"""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import msgspec
import structlog

from ltzd import telemetry
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock
from ltzd.errors import IndexStopped, NodeUnavailable
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.stopping import REBUILD
from ltzd.rules.indexer import disputes
from ltzd.rules.indexer.disputes import Decision, Dispute, DisputeVerdict, Opinion
from ltzd.rules.indexer.reorgs import NoForkReason, fork_point, no_fork_reason
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import Cursor
from ltzd.values import Hash32, hex_of

log = structlog.get_logger()

BRANCH = "branch"
"""The kind of a contradiction about which block is canonical."""
LINKS = "block_links"
"""The kind of a node's contradiction with itself: a block that is not its parent's child."""
_LEAST_DEEP_CHECKS = 3
_LEAST_UNLINKED = 3
"""Unlinked answers in a row before the node is reported: a reorg during a batch causes one, too."""


class Fork(msgspec.Struct, frozen=True):
    """Where a node's chain leaves the indexed one.

    - `common` is the highest indexed block that the node shows; None if it shows none of those that
      were compared, which reach down to the final block, or to the first kept one on dev chains.
    - `lowest_missing` is the lowest compared block that the node does not show; None if it shows
      all.
    - `shows_others` tells whether the node has other blocks at those heights. If not, it has lost
      blocks rather than switched branches.
    """

    common: tuple[int, Hash32] | None
    lowest_missing: tuple[int, Hash32] | None
    shows_others: bool


class KeepBlocks(msgspec.Struct, frozen=True):
    """The indexed blocks hold; `node` shows them."""

    node: Node


class Undo(msgspec.Struct, frozen=True):
    """The blocks above `fork` are gone; `node` shows the branch that replaces them."""

    fork: tuple[int, Hash32]
    node: Node


Ruling = KeepBlocks | Undo | None
"""None: nothing is decided, so nothing may be written."""


class Branches:
    """Remembers an open dispute between two calls, with the nodes that take part in it."""

    def __init__(
        self, pool: Pool, genesis_hash: Hash32, policy: IndexerPolicy, clock: Clock
    ) -> None:
        self._pool = pool
        self._genesis_hash = genesis_hash
        self._policy = policy
        self._clock = clock
        self._dispute: Dispute | None = None
        self._witnesses: list[Node] = []
        """The nodes when the dispute began. A node that the pool has since excluded still counts,
        or the other side of a contradiction would be believed because it is alone."""
        self._is_tied = False
        self._deep_since: float | None = None
        self._deep_checks = 0
        self._unlinked = 0
        self._undos = 0
        """How often this dispute was decided against the indexed block."""

    @property
    def is_disputed(self) -> bool:
        return self._dispute is not None

    def settle(self) -> None:
        """Close the dispute: no node contradicts the indexed blocks any more."""
        if self._is_tied:
            log.warning("indexer.nodes_agree_again")
        self._dispute, self._witnesses, self._is_tied, self._undos = None, [], False, 0
        telemetry.BRANCHES_TIED.set(0)

    async def rule(self, node: Node, cursor: Cursor) -> Ruling:
        """Ask all nodes, and decide whether the indexed blocks are canonical.

        `node` is the node in use. Raises NodeUnavailable, and IndexStopped if the final blocks are
        gone. The dispute stays open after an `Undo` until `settle` is called.
        """
        opened = self._dispute
        if opened is None:
            fork = await self._fork_of(node, cursor)
            if fork.lowest_missing is None:
                return KeepBlocks(node)
            number, ours = fork.lowest_missing
            opened = Dispute(number, ours, self._clock())
        self._add_witnesses(node)
        opinions = await self._opinions(opened.number)
        policy = self._policy.dispute_policy
        self._dispute, decision = disputes.count_votes(
            opened,
            opinions,
            self._clock(),
            policy,
            is_alone=len(opinions) == 1 and node.is_alone,
        )
        self._record(decision, self._dispute)
        match decision.verdict:
            case DisputeVerdict.HOLDS:
                self._deep_since = None
                return KeepBlocks(self._after_holding(opinions, self._dispute))
            case DisputeVerdict.GONE:
                return await self._undo(cursor, opinions, decision)
        return None

    # The nodes

    def _add_witnesses(self, node: Node) -> None:
        present = [node, *node.others()]
        if len(present) >= len(self._witnesses):
            self._witnesses = present

    async def _opinions(self, number: int) -> list[Opinion | None]:
        return await asyncio.gather(*(self._opinion(node, number) for node in self._witnesses))

    async def _opinion(self, node: Node, number: int) -> Opinion | None:
        try:
            async with asyncio.timeout(self._policy.opinion_seconds):
                head, block = await node.head_and_block(number)
                is_syncing = block is None and await node.is_syncing()
        except (NodeUnavailable, TimeoutError):
            return None
        return Opinion(head.number, block.hash if block else None, is_syncing)

    def _after_holding(self, opinions: Sequence[Opinion | None], dispute: Dispute) -> Node:
        """A node that shows the indexed block; tells of nodes that keep contradicting it."""
        answers = list(zip(self._witnesses, opinions, strict=True))
        holders = [node for node, answer in answers if answer and answer.block_hash == dispute.ours]
        deniers = [
            node
            for node, answer in answers
            if answer and answer.block_hash not in (None, dispute.ours)
        ]
        lasts = self._clock() - dispute.since
        if not deniers:
            if len(holders) == len(answers) or lasts >= self._policy.second_check_seconds:
                self.settle()
        elif lasts >= self._policy.stall_seconds:
            for node in deniers:
                node.report_contradiction(BRANCH)
            self.settle()
        return holders[0]

    def _record(self, decision: Decision, dispute: Dispute) -> None:
        is_tied = decision.verdict is DisputeVerdict.TIED
        telemetry.BRANCHES_TIED.set(is_tied)
        if is_tied and not self._is_tied:
            log.critical(
                "indexer.nodes_disagree",
                block=dispute.number,
                indexed=hex_of(dispute.ours),
                shown=sorted(hex_of(shown) for shown in dispute.branches),
                effect="nothing is indexed until the nodes agree, or only one branch grows",
            )
        self._is_tied = self._is_tied or is_tied

    # Undoing

    async def _undo(
        self, cursor: Cursor, opinions: Sequence[Opinion | None], decision: Decision
    ) -> Ruling:
        """The ruling against the indexed block, by a node that shows the winning branch.

        Each call uses the next of these nodes, since the last one may not have shown the branch's
        logs.
        """
        nodes = [
            node
            for node, answer in zip(self._witnesses, opinions, strict=True)
            if answer is not None and answer.shows(decision.winner)
        ]
        node = nodes[self._undos % len(nodes)]
        self._undos += 1
        fork = await self._fork_of(node, cursor)
        if fork.lowest_missing is None:
            self.settle()
            return KeepBlocks(node)
        if fork.common is None:
            await self._refuse(node, fork, cursor, decision)
        self._deep_since = None
        return Undo(fork.common, node)

    async def _refuse(self, node: Node, fork: Fork, cursor: Cursor, decision: Decision) -> NoReturn:
        """Raises IndexStopped if two nodes deny the final blocks, or one node for a long time.

        Raises NodeUnavailable until then, and for a node that was wiped, is syncing, or follows
        another chain.
        """
        genesis = await node.block(0)
        shows_others = fork.shows_others or await self._has_other_head(node)
        match no_fork_reason(
            self._genesis_hash, genesis.hash if genesis else None, shows_others=shows_others
        ):
            case NoForkReason.OTHER_CHAIN:
                shown = hex_of(genesis.hash) if genesis else "unknown"
                raise NodeUnavailable(
                    f"The node follows another chain: its genesis is {shown}, expected "
                    f"{hex_of(self._genesis_hash)}"
                )
            case NoForkReason.BEHIND:
                raise NodeUnavailable(
                    f"The node is behind the final block {cursor.final_number}: it is syncing",
                    kind="behind",
                )
        text = (
            "The node shares no block with the database: it follows another chain"
            if self._policy.follows_deep_reorgs
            else f"The chain was reorganised below the final block {cursor.final_number}"
        )
        now = self._clock()
        if self._deep_since is None:
            self._deep_since, self._deep_checks = now, 0
            log.critical("indexer.final_blocks_denied", reason=text, votes=decision.votes)
        self._deep_checks += 1
        lasts = now - self._deep_since
        is_lasting = (
            lasts >= self._policy.broken_after_seconds and self._deep_checks >= _LEAST_DEEP_CHECKS
        )
        if decision.votes > 1 or is_lasting:
            raise IndexStopped(f"{text}. Run: {REBUILD}")
        raise NodeUnavailable(f"{text}, says one node, for {lasts:.0f} s so far")

    async def _has_other_head(self, node: Node) -> bool:
        """Whether a node below the final block is on another branch there.

        Compares the highest indexed block that is not above the node's head.
        """
        head, _ = await node.head_and_final()
        async with session(self._pool) as connection:
            indexed = await chains.newest_blocks(connection, head.number, 1)
        on_node = await self._blocks_of(node, [number for number, _ in indexed])
        return any(on_node.get(number, ours) != ours for number, ours in indexed)

    async def _fork_of(self, node: Node, cursor: Cursor) -> Fork:
        """Compare the node's blocks with the indexed ones, newest first, a batch at a time.

        The search ends at the final block, unless reorgs below it are followed.
        """
        below = cursor.number
        final_number = None if self._policy.follows_deep_reorgs else cursor.final_number
        lowest_missing: tuple[int, Hash32] | None = None
        shows_others = False
        while True:
            async with session(self._pool) as connection:
                indexed = await chains.newest_blocks(
                    connection, below, self._policy.fork_search_blocks, final_number
                )
            if not indexed:
                return Fork(None, lowest_missing, shows_others)
            on_node = await self._blocks_of(node, [number for number, _ in indexed])
            fork = fork_point(indexed, on_node)
            missing = [block for block in indexed if fork is None or block[0] > fork[0]]
            shows_others |= any(
                on_node.get(number, block_hash) != block_hash for number, block_hash in missing
            )
            if missing:
                lowest_missing = missing[-1]
            if fork is not None:
                return Fork(fork, lowest_missing, shows_others)
            below = indexed[-1][0] - 1

    async def _blocks_of(self, node: Node, numbers: Sequence[int]) -> dict[int, Hash32]:
        """Raises NodeUnavailable if the node's blocks are not one chain."""
        headers = [header for header in await node.headers(numbers) if header is not None]
        by_number = {header.number: header.hash for header in headers}
        for header in headers:
            if by_number.get(header.number - 1, header.parent_hash) != header.parent_hash:
                self._unlinked += 1
                if self._unlinked >= _LEAST_UNLINKED:
                    node.report_contradiction(LINKS)
                raise NodeUnavailable("The node's blocks are not one chain", kind="malformed")
        self._unlinked = 0
        return by_number
