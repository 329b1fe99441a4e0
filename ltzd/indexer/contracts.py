"""The registry of the contracts whose logs are indexed.

To index another contract, write its module (topics, decoder, inserts, undo, tables) and add one
entry to `indexed_contracts`. The reader, the follower, the metrics, the undoing of reorgs and the
rebuilding of the index know the contracts from this registry only.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import msgspec

from ltzd.chain.contracts import business_escrow, ltz, perk_nft, points_sale
from ltzd.chain.contracts.ltz_transfers import transfer_texts
from ltzd.chain.node.log_entries import LogEntry
from ltzd.indexer.completeness import totals
from ltzd.indexer.completeness.totals import ReadTotals
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import Transfer
from ltzd.store.database import Connection
from ltzd.store.indexer import escrow_facts, mint_facts, perk_facts, sale_facts, transfer_batches
from ltzd.store.indexer.derived_rows import DerivedTable
from ltzd.store.indexer.fact_rows import FactTable
from ltzd.store.indexer.index_correction import CorrectContract
from ltzd.values import Address

NodeLog: TypeAlias = Any
"""A log as `eth_getLogs` returns it: a dictionary, or a LogEntry that is read like it."""


class Fact(Protocol):
    """A decoded log. `kind` labels it in the metric `ltzd_indexer_facts_total`."""

    kind: ClassVar[str]

    @property
    def position(self) -> LogPosition: ...


class FactBatch(Protocol):
    """Many facts as rows. `held_bytes` is about the memory that they take."""

    @property
    def count(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...


class BulkFacts(msgspec.Struct, frozen=True):
    """How the contract's most frequent logs become rows without being decoded one by one.

    - `kind` is that of the facts.
    - `read` takes a contract's logs in one block, the block's height, and its hash as digits. It
      returns the texts of the usual logs, and the logs that `IndexedContract.decode` must decode.
    - `batch` makes rows of texts. Raises ValueError for texts that are no hexadecimal digits.
    - `insert` writes batches and what is derived from them.
    """

    kind: str
    read: Callable[[Sequence[LogEntry], int, str], tuple[list[Any], list[LogEntry]]]
    batch: Callable[[Sequence[Any]], FactBatch]
    insert: Callable[[Connection, Sequence[Any]], Awaitable[None]]


LTZ_TRANSFERS: Final = BulkFacts(
    Transfer.kind, transfer_texts, transfer_batches.batch_of, transfer_batches.insert
)


class IndexedContract(msgspec.Struct, frozen=True):
    """One contract whose logs are indexed.

    - `topics`: first topics to look for in a block's logs bloom. Every block with a fact of this
      contract holds a log with one of them.
    - `decode` returns the fact in a log, or None for a log that is not kept. Raises ValueError for
      a malformed log, and Broken for a log that only another contract can have written.
    - `insert` writes facts and what is derived from them. Returns how many of the facts are mints
      that match no reward, or None if the contract mints no rewards.
    - `undo` deletes the facts above a block and corrects what is derived from them.
    - `correct` corrects facts anywhere in the history, and what is derived from them.
    - `fact_tables` are the tables of the facts; each kind of fact has one.
    - `bulk` is for the contract's most frequent logs, where many blocks are read at once.
    - `derive` derives from the facts of the blocks first…last, which a rebuild has copied.
    - `derived` are the tables that can be compared with the facts, each after those that it needs.
    - `tables` are the tables that `insert` fills, in an order in which they can be emptied.
    - `totals` reads from the tables what the contract itself can tell in one call.
    """

    address: Address
    topics: Sequence[bytes]
    decode: Callable[[NodeLog], Fact | None]
    insert: Callable[[Connection, Sequence[Any]], Awaitable[int | None]]
    undo: Callable[[Connection, int], Awaitable[None]]
    tables: Sequence[str]
    correct: CorrectContract
    fact_tables: Sequence[FactTable]
    derive: Callable[[Connection, int, int], Awaitable[None]]
    totals: ReadTotals = totals.no_totals
    derived: Sequence[DerivedTable] = ()
    bulk: BulkFacts | None = None


def indexed_contracts(at: Mapping[str, Address]) -> tuple[IndexedContract, ...]:
    """The registry. `at` holds the addresses under the names of the section `contracts`.

    The database remembers the addresses in this order: another order or another address rebuilds
    the index.
    """
    return (
        IndexedContract(
            at["ltz"],
            ltz.INDEXED_TOPICS,
            ltz.decode_log,
            mint_facts.insert,
            mint_facts.undo_above,
            mint_facts.TABLES,
            mint_facts.correct,
            mint_facts.FACT_TABLES,
            mint_facts.derive,
            totals.of_ltz,
            mint_facts.DERIVED,
            bulk=LTZ_TRANSFERS,
        ),
        IndexedContract(
            at["perk_nft"],
            perk_nft.INDEXED_TOPICS,
            perk_nft.decode_indexed_log,
            perk_facts.insert,
            perk_facts.undo_above,
            perk_facts.TABLES,
            perk_facts.correct,
            perk_facts.FACT_TABLES,
            perk_facts.derive,
            totals.of_perk_nft,
            perk_facts.DERIVED,
        ),
        IndexedContract(
            at["points_sale"],
            points_sale.INDEXED_TOPICS,
            points_sale.decode_log,
            sale_facts.insert,
            sale_facts.undo_above,
            sale_facts.TABLES,
            sale_facts.correct,
            sale_facts.FACT_TABLES,
            sale_facts.derive,
            totals.of_points_sale,
            sale_facts.DERIVED,
        ),
        IndexedContract(
            at["business_escrow"],
            business_escrow.INDEXED_TOPICS,
            business_escrow.decode_log,
            escrow_facts.insert,
            escrow_facts.undo_above,
            escrow_facts.TABLES,
            escrow_facts.correct,
            escrow_facts.FACT_TABLES,
            escrow_facts.derive,
            totals.of_business_escrow,
            escrow_facts.DERIVED,
        ),
    )
