"""Compares a database with the chain's record of its wallets and LTZ, and corrects the database.

Processes may run meanwhile: a lane whose counters move gets a new epoch, which ends its term.
Each part is one database transaction and safe to repeat.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ltzd.chain.deployment.agreement import agreed_answer
from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.errors import LaneLost, NodeUnavailable, Refused
from ltzd.operator.mints import references
from ltzd.operator.policy import MINT
from ltzd.operator.wallet_nonces import gather_histories
from ltzd.rules.operator import wallet_history
from ltzd.rules.operator.references import LaneReferences
from ltzd.rules.operator.wallet_history import WalletHistory
from ltzd.store.database import Connection
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.operator import lanes, lost_mints, restore
from ltzd.store.operator.lost_mints import LostMints
from ltzd.store.operator.restore import LaneRecord
from ltzd.store.wakeups import WALLETS, notify
from ltzd.values import Address, checksummed

T = TypeVar("T")

NamedNodes = Sequence[tuple[str, Node]]


class WalletComparison(msgspec.Struct, frozen=True):
    """A wallet in the database (None for an unknown one) and at each node."""

    wallet: Address
    record: LaneRecord | None
    histories: tuple[WalletHistory, ...]
    has_taken_references: bool = False
    """Whether LTZ has used references that this lane may still give out."""
    silent: tuple[str, ...] = ()
    """The nodes of the settings that did not tell the wallet's nonces."""

    @property
    def nonce(self) -> int:
        """The nonce to continue at."""
        return wallet_history.next_free(
            self.histories, () if self.record is None else self.record.in_flight
        )

    @property
    def behind_gap(self) -> list[int]:
        """Pooled nonces behind a gap: a lower nonce that neither a node nor the database has."""
        return wallet_history.behind_gap(self.histories, self.nonce)

    @property
    def is_ahead(self) -> bool:
        """Whether the chain knows more of the wallet's transactions than the database."""
        next_nonce = 0 if self.record is None else self.record.next_nonce
        return bool(wallet_history.ahead_of(self.histories, next_nonce))

    @property
    def waits_in_vain(self) -> bool:
        """Whether the lane waits for transactions that no node has any more."""
        record = self.record
        return record is not None and record.resumed_nonce > max(self.nonce, record.last_signed + 1)

    @property
    def must_resume(self) -> bool:
        is_marked = self.record is not None and self.record.foreign_use is not None
        return self.is_ahead or is_marked or self.waits_in_vain or self.has_taken_references

    @property
    def is_lowered_in_doubt(self) -> bool:
        """Whether the lane would return to a nonce that a silent node may know as used."""
        record = self.record
        if record is None or not self.must_resume or not self.silent:
            return False
        return max(self.nonce, record.last_signed + 1) < record.next_nonce

    @property
    def obstacle(self) -> str | None:
        """Why the lane is left as it is, and what to do about it; or None."""
        if self.behind_gap:
            nonces = ", ".join(map(str, self.behind_gap[:5]))
            return (
                f"Transactions of {checksummed(self.wallet)} with the nonces {nonces} wait in a "
                f"node's pool for nonce {self.nonce}, which neither a node nor this database has. "
                "The next transaction of the lane would release them. Wait until the nodes have "
                "dropped them, or publish the missing ones. If somebody else has the wallet's key, "
                f"retire it: `ltzd wallet retire {checksummed(self.wallet)} --stolen`."
            )
        if self.must_resume and (
            wallet_history.contradict_each_other(self.histories)
            or wallet_history.is_outvoted_on_next(self.histories)
        ):
            return _disagreement(self.wallet)
        if self.is_lowered_in_doubt and self.record is not None:
            return (
                f"The lane of {checksummed(self.wallet)} is at nonce {self.record.next_nonce}, and "
                f"the nodes that answer know only those below {self.nonce}. These nodes of the "
                f"settings did not answer, and may know later ones: {', '.join(self.silent)}. "
                "Repeat the command when all of them answer, or remove a node that is gone from "
                "the settings."
            )
        return None


def _disagreement(wallet: Address) -> str:
    return (
        f"The nodes disagree about the nonce of {checksummed(wallet)}: repeat the command "
        "when they agree, or name only nodes that you trust."
    )


class Comparison(msgspec.Struct, frozen=True):
    """`lanes` has the lane of each wallet that is not retired.

    `next_seq` is the counter of references, None before the first mint lane.

    `free_seq` is the first seq of the word above all references that LTZ has used. `head` is
    the highest head of the nodes, `cursor` the newest block in the index. `waiting` counts queued
    rewards without a reference.
    """

    chain: ChainIdentity
    lanes: tuple[WalletComparison, ...]
    next_seq: int | None
    free_seq: int
    cursor: int
    head: int
    waiting: int
    mints: LostMints

    @property
    def is_counter_behind(self) -> bool:
        return self.next_seq is not None and self.next_seq < self.free_seq

    @property
    def must_apply(self) -> bool:
        """Whether `apply` has something to do."""
        return (
            self.is_counter_behind
            or any(lane.must_resume for lane in self.lanes)
            or self.mints.unlinked > 0
            or self.mints.taken > 0
        )


class Applied(msgspec.Struct, frozen=True):
    """`resumed` are lanes with the nonce that each continues at.

    `held_back` are lanes that should continue, and have an obstacle.
    """

    resumed: tuple[tuple[LaneRecord, int], ...]
    held_back: tuple[WalletComparison, ...]
    raised_to: int | None
    linked: int
    released: int


async def compare(
    connection: Connection, nodes: NamedNodes, silent: Sequence[str] = ()
) -> Comparison:
    """Read both sides; changes nothing. `silent` are nodes of the settings that do not answer.

    Raises Refused for a new database, and NodeUnavailable, also while no node has reached the
    index: a node that is behind shows used nonces and references as free.
    """
    chain = await followed_chain(connection)
    # Read before the nodes: an indexer that runs meanwhile does not count.
    cursor = await chains.cursor(connection, chain.chain_id)
    witnesses = await _witnesses(nodes, cursor.number)
    wallets = await restore.list_wallets(connection, chain.chain_id)
    compared = [
        await _compare_lane(connection, nodes, silent, witnesses, chain, cursor.number, wallet)
        for wallet in wallets
    ]
    next_seq = await lanes.next_seq(connection, chain.chain_id, chain.ltz)
    free_seq = 0
    if next_seq is not None:
        free_seq = await _first_free_seq(witnesses, chain, next_seq)
    heads = [history.head for lane in compared for history in lane.histories]
    return Comparison(
        chain,
        tuple(compared),
        next_seq,
        free_seq,
        cursor.number,
        max([witnesses.head, *heads]),
        await restore.count_waiting(connection),
        await lost_mints.count(connection),
    )


async def followed_chain(connection: Connection) -> ChainIdentity:
    """The database's chain. Raises Refused for a database without one."""
    chain = await chains.identity(connection)
    if chain is None:
        raise Refused("The database follows no chain yet: start ltzd with it first.")
    return chain


class _Witnesses(msgspec.Struct, frozen=True):
    """The nodes that have reached the index, by name; one at least. `head` is the highest head."""

    nodes: Mapping[str, Node]
    head: int

    async def agreed(self, read: Callable[[ChainView], Awaitable[T]]) -> T:
        """The answer of every node about LTZ's references after its newest block.

        Raises NodeUnavailable if they do not agree: a node that lies could hide the references that
        are lost, or invent so many that no free one is left.
        """

        async def read_newest(node: Node) -> T:
            return await read(await ChainView.newest(node))

        async def ask_each() -> Mapping[str, T]:
            answers = await asyncio.gather(*map(read_newest, self.nodes.values()))
            return dict(zip(self.nodes, answers, strict=True))

        subject = "the references that LTZ has used"
        return await agreed_answer(subject, ask_each, "Nothing changed.")


async def _witnesses(nodes: NamedNodes, block_number: int) -> _Witnesses:
    """Raises NodeUnavailable if no node answers, or if all are below the block."""
    reads = [ChainView.newest(node) for _, node in nodes]
    heads: dict[str, int] = {}
    for (name, _), view in zip(
        nodes, await asyncio.gather(*reads, return_exceptions=True), strict=True
    ):
        if isinstance(view, ChainView):
            heads[name] = view.head.number
        elif not isinstance(view, NodeUnavailable):
            raise view
    if not heads:
        raise NodeUnavailable("No node shows its newest block")
    _refuse_behind(list(heads.values()), block_number)
    reaching = {name: node for name, node in nodes if heads.get(name, -1) >= block_number}
    return _Witnesses(reaching, max(heads.values()))


async def _first_free_seq(witnesses: _Witnesses, chain: ChainIdentity, next_seq: int) -> int:
    async def read_words(first: int) -> Mapping[int, int]:
        return await witnesses.agreed(lambda view: references.words_from(view, chain.ltz, first))

    return await references.first_free_seq_by(read_words, next_seq)


def _refuse_behind(heads: Sequence[int], block_number: int) -> None:
    """Raises NodeUnavailable if all `heads` are below the block. `heads` must not be empty."""
    if max(heads) < block_number:
        raise NodeUnavailable(
            f"The nodes are behind: the index has read block {block_number}, and the highest head "
            f"of the nodes that answer is {max(heads)}. Such nodes show used nonces as free. "
            "Repeat the command when a node has caught up, or name another one in the "
            "settings ([node] urls). Nothing changed."
        )


async def _compare_lane(
    connection: Connection,
    nodes: NamedNodes,
    silent: Sequence[str],
    witnesses: _Witnesses,
    chain: ChainIdentity,
    cursor: int,
    wallet: Address,
) -> WalletComparison:
    histories = await gather_histories(nodes, wallet)
    _refuse_behind([history.head for history in histories], cursor)
    answered = {history.name for history in histories}
    silent = [*silent, *(name for name, _ in nodes if name not in answered)]
    # Read after the nodes: a running lane stores a transaction before it publishes it.
    record = await restore.find_lane(connection, chain.chain_id, wallet)
    held = LaneReferences() if record is None else record.references
    taken = await witnesses.agreed(lambda view: references.first_taken(view, chain.ltz, held))
    return WalletComparison(wallet, record, tuple(histories), taken is not None, tuple(silent))


async def apply(connection: Connection, comparison: Comparison) -> Applied:
    """Correct the database by the result of `compare`.

    A lane with an obstacle is left as it is, and the others continue: otherwise the thief of one
    wallet's key could delay all lanes. Raises LaneLost if a lane has signed since the comparison.
    """
    must_resume = [lane for lane in comparison.lanes if lane.must_resume]
    resumable = [lane for lane in must_resume if lane.obstacle is None]
    async with connection.transaction():
        has_raised = await _raise_counter(connection, comparison)
        for lane in resumable:
            await _resume(connection, comparison.chain, lane)
        await notify(connection, WALLETS)
    linked = await lost_mints.link(connection)
    released = await lost_mints.release(connection)
    return Applied(
        tuple((lane.record, lane.nonce) for lane in resumable if lane.record is not None),
        tuple(lane for lane in must_resume if lane.obstacle is not None),
        comparison.free_seq if has_raised else None,
        linked,
        len(released),
    )


async def _raise_counter(connection: Connection, comparison: Comparison) -> bool:
    if comparison.next_seq is None:
        return False
    chain = comparison.chain
    return await restore.raise_counter(connection, chain.chain_id, chain.ltz, comparison.free_seq)


async def _resume(connection: Connection, chain: ChainIdentity, lane: WalletComparison) -> None:
    assert lane.record is not None, "only known lanes are compared"
    if not await restore.resume_lane(
        connection,
        chain.chain_id,
        lane.record,
        lane.nonce,
        keeps_word=not lane.has_taken_references,
    ):
        raise LaneLost(
            f"The lane of {checksummed(lane.wallet)} has signed meanwhile: nothing changed. "
            "Repeat the command"
        )


# Adopting one wallet


async def compare_wallet(
    connection: Connection, nodes: NamedNodes, wallet: Address, silent: Sequence[str] = ()
) -> tuple[ChainIdentity, WalletComparison]:
    """Read one wallet from the database and the nodes; changes nothing. Raises as `compare`."""
    chain = await followed_chain(connection)
    cursor = await chains.cursor(connection, chain.chain_id)
    witnesses = await _witnesses(nodes, cursor.number)
    return chain, await _compare_lane(
        connection, nodes, silent, witnesses, chain, cursor.number, wallet
    )


async def adopt(
    connection: Connection,
    nodes: NamedNodes,
    chain: ChainIdentity,
    lane: WalletComparison,
    kind: str,
) -> int | None:
    """Let a lane of the wallet continue behind everything that the wallet has signed.

    Returns the seq to which the counter of references was raised, or None. Raises Refused,
    NodeUnavailable, and LaneLost if the lane has signed since `compare_wallet`; then nothing
    changes.
    """
    if lane.obstacle is not None:
        raise Refused(f"{lane.obstacle} Nothing changed.")
    if not wallet_history.agrees_on_used(lane.histories):
        raise Refused(_disagreement(lane.wallet))
    seq = None
    if kind == MINT:
        cursor = await chains.cursor(connection, chain.chain_id)
        witnesses = await _witnesses(nodes, cursor.number)
        next_seq = await lanes.next_seq(connection, chain.chain_id, chain.ltz)
        seq = await _first_free_seq(witnesses, chain, next_seq or 0)
    async with connection.transaction():
        has_raised = seq is not None and await restore.raise_counter(
            connection, chain.chain_id, chain.ltz, seq
        )
        if lane.record is not None:
            await _resume(connection, chain, lane)
        elif not await restore.create_lane(
            connection, chain.chain_id, lane.wallet, kind, lane.nonce
        ):
            raise LaneLost(
                "Another command or process has given the wallet a lane meanwhile: nothing changed"
            )
        await notify(connection, WALLETS)
    return seq if has_raised else None
