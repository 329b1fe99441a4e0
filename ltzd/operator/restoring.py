"""Compares a database with what its wallets and LTZ have done on chain, and makes it fit.

Works beside running processes: a lane whose counters move gets a new epoch, which ends its term.
Each part is one database transaction and safe to repeat.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.errors import LaneLost, Refused
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

NamedNodes = Sequence[tuple[str, Node]]


@dataclass(frozen=True, slots=True)
class WalletComparison:
    """A wallet in the database (None for an unknown one) and at each node."""

    wallet: Address
    record: LaneRecord | None
    histories: tuple[WalletHistory, ...]
    has_taken_references: bool = False
    """Whether LTZ has used references that this lane may still give out."""

    @property
    def nonce(self) -> int:
        """The nonce to continue at."""
        return wallet_history.next_free(
            self.histories, () if self.record is None else self.record.in_flight
        )

    @property
    def behind_gap(self) -> list[int]:
        """Nonces in pools that wait for one which neither a node nor the database has."""
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """`next_seq` is the counter of references, None before the first mint lane.

    `free_seq` is the first word of references above all that LTZ has used. `head` is the highest
    head of the nodes, `cursor` the newest block in the index. `waiting` counts queued rewards
    without a reference.
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


@dataclass(frozen=True, slots=True)
class Applied:
    """`resumed` are lanes with the nonce that each continues at."""

    resumed: tuple[tuple[LaneRecord, int], ...]
    raised_to: int | None
    linked: int
    released: int


async def compare(connection: Connection, nodes: NamedNodes) -> Comparison:
    """Read both sides; changes nothing. Raises Refused for a new database, NodeUnavailable."""
    chain = await followed_chain(connection)
    view = await ChainView.newest(nodes[0][1])
    wallets = await restore.list_wallets(connection, chain.chain_id)
    compared = [await _compare_lane(connection, nodes, view, chain, each) for each in wallets]
    next_seq = await lanes.next_seq(connection, chain.chain_id, chain.ltz)
    free_seq = 0
    if next_seq is not None:
        free_seq = await references.first_free_seq(view, chain.ltz, next_seq)
    cursor = await chains.cursor(connection, chain.chain_id)
    heads = [history.head for lane in compared for history in lane.histories]
    return Comparison(
        chain,
        tuple(compared),
        next_seq,
        free_seq,
        cursor.number,
        max([view.head.number, *heads]),
        await restore.count_waiting(connection),
        await lost_mints.count(connection),
    )


async def followed_chain(connection: Connection) -> ChainIdentity:
    """The database's chain. Raises Refused for a database without one."""
    chain = await chains.identity(connection)
    if chain is None:
        raise Refused("The database follows no chain yet: start ltzd with it first.")
    return chain


async def _compare_lane(
    connection: Connection,
    nodes: NamedNodes,
    view: ChainView,
    chain: ChainIdentity,
    wallet: Address,
) -> WalletComparison:
    histories = await gather_histories(nodes, wallet)
    # Read after the nodes: a running lane stores a transaction before it publishes it.
    record = await restore.find_lane(connection, chain.chain_id, wallet)
    held = LaneReferences() if record is None else record.references
    has_taken = await references.first_taken(view, chain.ltz, held) is not None
    return WalletComparison(wallet, record, tuple(histories), has_taken)


async def apply(connection: Connection, comparison: Comparison) -> Applied:
    """Make the database fit what `compare` has found.

    Raises Refused, before any change, for a wallet whose pool has a gap; and LaneLost if a lane has
    signed since the comparison.
    """
    must_resume = [lane for lane in comparison.lanes if lane.must_resume]
    for lane in must_resume:
        refuse_gap(lane)
    async with connection.transaction():
        has_raised = await _raise_counter(connection, comparison)
        for lane in must_resume:
            await _resume(connection, comparison.chain, lane)
        await notify(connection, WALLETS)
    linked = await lost_mints.link(connection)
    released = await lost_mints.release(connection)
    return Applied(
        tuple((lane.record, lane.nonce) for lane in must_resume if lane.record is not None),
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


def refuse_gap(lane: WalletComparison) -> None:
    """Raises Refused if transactions wait for a nonce that would be given out now."""
    if lane.behind_gap:
        nonces = ", ".join(map(str, lane.behind_gap[:5]))
        raise Refused(
            f"Transactions of {checksummed(lane.wallet)} with the nonces {nonces} wait in a node's "
            f"pool for nonce {lane.nonce}, which neither a node nor this database has. What the "
            "lane would sign next would release them. Wait until the nodes have dropped them, or "
            "publish the missing ones. Nothing changed."
        )


# Adopting one wallet


async def look_at(
    connection: Connection, nodes: NamedNodes, wallet: Address
) -> tuple[ChainIdentity, WalletComparison]:
    """One wallet in the database and at the nodes. Raises Refused, NodeUnavailable."""
    chain = await followed_chain(connection)
    view = await ChainView.newest(nodes[0][1])
    return chain, await _compare_lane(connection, nodes, view, chain, wallet)


async def adopt(
    connection: Connection,
    nodes: NamedNodes,
    chain: ChainIdentity,
    lane: WalletComparison,
    kind: str,
) -> int | None:
    """Let a lane of the wallet continue behind everything that the wallet has signed.

    Returns the seq to which the counter of references was raised, or None. Raises Refused,
    NodeUnavailable, and LaneLost if the lane has signed since `look_at`; nothing changes then.
    """
    refuse_gap(lane)
    if not wallet_history.agrees_on_used(lane.histories):
        raise Refused(
            f"The nodes disagree about the nonce of {checksummed(lane.wallet)}: repeat the command "
            "when they agree, or name only nodes that you trust."
        )
    seq = None
    if kind == MINT:
        view = await ChainView.newest(nodes[0][1])
        next_seq = await lanes.next_seq(connection, chain.chain_id, chain.ltz)
        seq = await references.first_free_seq(view, chain.ltz, next_seq or 0)
    async with connection.transaction():
        has_raised = seq is not None and await restore.raise_counter(
            connection, chain.chain_id, chain.ltz, seq
        )
        if lane.record is not None:
            await _resume(connection, chain, lane)
        elif not await restore.create_lane(
            connection, chain.chain_id, lane.wallet, kind, lane.nonce
        ):
            raise LaneLost("The wallet has got a lane meanwhile: nothing changed")
        await notify(connection, WALLETS)
    return seq if has_raised else None
