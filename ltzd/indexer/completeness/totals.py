"""Compares the contracts' own totals with the tables, after the newest indexed block.

One request asks for LTZ's supply, and for a sample: balances, holders of tokens, tokens minted in a
collection, pieces sold of an item, states of deals. The comparison finds logs that blooms and
answers hide, and needs no old state while the index is near the head.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ltzd.chain.contracts import abi_words, business_escrow, ltz, perk_nft, points_sale
from ltzd.chain.node.answers.typed import Header, Revert
from ltzd.chain.node.node import Node
from ltzd.errors import NodeUnavailable
from ltzd.store.database import Connection, Pool, session
from ltzd.store.indexer import chains, totals
from ltzd.store.indexer.chains import Cursor
from ltzd.values import Address, Hash32, checksummed, hex_of

_TOTAL_SUPPLY = abi_words.selector("totalSupply()")
_COLLECTION_COUNT = abi_words.selector("collectionCount()")
_OWNER_OF = abi_words.selector("ownerOf(uint256)")


class Total(msgspec.Struct, frozen=True):
    """A number that the tables know, and the call that asks the contract for it.

    `decode` raises ValueError for an answer of another form.
    """

    name: str
    contract: Address
    call: bytes
    decode: Callable[[bytes], object]
    indexed: object


class TotalDifference(msgspec.Struct, frozen=True):
    """`difference` is what the chain has more than the index, or both values as text."""

    name: str
    difference: int | str

    def __str__(self) -> str:
        return f"{self.name}: {self.difference}"


class TotalsCheck(msgspec.Struct, frozen=True):
    """`differences` is None if the node lacks the state or the contracts."""

    cursor: Cursor
    differences: Sequence[TotalDifference] | None


ReadTotals = Callable[[Connection, Address, bytes], Awaitable[Sequence[Total]]]
"""Reads the totals of one contract from the tables; the bytes are a random place of the sample."""


async def check_totals(
    pool: Pool,
    chain_id: int,
    node: Node,
    contracts: Sequence[tuple[Address, ReadTotals]],
    place: bytes,
) -> TotalsCheck:
    """Compare the totals of all contracts with the tables, as of the cursor.

    `place` is 32 bytes, at which the sample begins. The result is empty if the node does not
    answer, is behind, or lacks this state. Raises DatabaseUnavailable.
    """
    async with (
        session(pool) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        cursor = await chains.cursor(connection, chain_id)
        expected = [
            total
            for address, read_totals in contracts
            for total in await read_totals(connection, address, place)
        ]
    try:
        answers = await node.view_outcomes(
            [(total.contract, total.call) for total in expected], _named(cursor)
        )
    except NodeUnavailable:
        return TotalsCheck(cursor, None)
    if any(isinstance(answer, Revert) and answer.data is None for answer in answers):
        return TotalsCheck(cursor, None)  # The node has pruned the state.
    on_chain = [_decoded(total, answer) for total, answer in zip(expected, answers, strict=True)]
    if all(value is None for value in on_chain):
        return TotalsCheck(cursor, None)
    return TotalsCheck(
        cursor,
        [
            TotalDifference(total.name, _difference(total.indexed, value))
            for total, value in zip(expected, on_chain, strict=True)
            if value is not None and total.indexed != value
        ],
    )


def _decoded(total: Total, answer: bytes | Revert) -> object | None:
    """The total, or the text "nothing" if the contract says that it knows no such thing.

    Returns None for an answer of another form: the contract has not this function.
    """
    if isinstance(answer, Revert):
        return "nothing" if answer.data else None
    try:
        return total.decode(answer)
    except ValueError:
        return None


async def of_ltz(connection: Connection, at: Address, place: bytes) -> list[Total]:
    supply = await totals.supply(connection)
    expected = [Total("the supply of LTZ", at, _TOTAL_SUPPLY, ltz.decode_uint, supply)]
    for wallet, amount in (await totals.balances(connection, place)).items():
        call = ltz.balance_of_call(wallet)
        name = f"the balance of {checksummed(wallet)}"
        expected.append(Total(name, at, call, ltz.decode_uint, amount))
    return expected


async def of_perk_nft(connection: Connection, at: Address, place: bytes) -> list[Total]:
    count = await totals.collections(connection)
    expected = [Total("the number of collections", at, _COLLECTION_COUNT, ltz.decode_uint, count)]
    for token, holder in (await totals.holders(connection, place)).items():
        call = _OWNER_OF + abi_words.encode_uint(token)
        name = f"the holder of token {token}"
        expected.append(Total(name, at, call, ltz.decode_uint, int.from_bytes(holder, "big")))
    for collection, minted in (await totals.minted_tokens(connection, place)).items():
        call = perk_nft.collection_call(collection)
        name = f"the tokens of collection {collection}"
        expected.append(
            Total(name, at, call, lambda data: perk_nft.decode_collection(data).minted, minted)
        )
    return expected


async def of_points_sale(connection: Connection, at: Address, place: bytes) -> list[Total]:
    return [
        Total(
            f"the sold pieces of item {item}",
            at,
            points_sale.item_call(item),
            lambda data: points_sale.decode_item(data).sold,
            sold,
        )
        for item, sold in (await totals.sold_pieces(connection, place)).items()
    ]


async def of_business_escrow(connection: Connection, at: Address, place: bytes) -> list[Total]:
    return [
        Total(
            f"the state of deal {hex_of(deal)}",
            at,
            business_escrow.deal_call(deal),
            lambda data: business_escrow.decode_deal(data).status.name.lower(),
            state,
        )
        for deal, state in (await totals.deal_states(connection, place)).items()
    ]


def _difference(indexed: object, on_chain: object) -> int | str:
    if isinstance(indexed, int) and isinstance(on_chain, int):
        return on_chain - indexed
    return f"{indexed} in the index, {on_chain} on the chain"


async def no_totals(_connection: Connection, _at: Address, _place: bytes) -> list[Total]:
    """For a contract that tells no totals."""
    return []


def _named(cursor: Cursor) -> Header:
    """A header that names exactly the cursor's block; nothing else of it is known or read."""
    return Header(cursor.number, cursor.hash, Hash32(bytes(32)), 0, b"", None)
