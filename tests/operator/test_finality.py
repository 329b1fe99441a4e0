"""Finality that a deep reorg (dev chains) takes back while a lane settles what was final."""

import asyncio

import pytest
from msgspec.structs import replace

from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_work import OutcomeSink
from ltzd.rules.operator.transactions import Finalized, Inclusion, ReceiptLost, State, Transaction
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow
from ltzd.store.operator import transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import OpenTransaction
from tests.support.chain.fake_node import CHAIN_ID, FakeNode
from tests.support.rows.core import (
    a_hash,
    a_lane,
    an_attempt,
    an_intent,
    follow,
    queue_rewards,
    save,
    states,
)
from tests.support.rows.reorgs import undo_above

HELD_BACK_SECONDS = 0.1
FINAL = Inclusion(1, a_hash("block 1"), succeeded=True)


class Settling:
    """A mint in a final block, read by its lane as one to settle."""

    def __init__(self, pool: Pool, lane: Lane, in_flight: InFlightTransactions) -> None:
        self.pool = pool
        self.lane = lane
        self.in_flight = in_flight
        self.genesis = FakeNode()

    async def mint(self) -> OpenTransaction:
        await follow(self.pool, self.genesis)
        ids = await queue_rewards(self.pool, 1)
        async with session(self.pool) as connection:
            row = await transactions.store_signed(
                connection, self.lane, an_intent(0, ids), an_attempt("a")
            )
            (tx,) = await transactions.in_flight(connection, self.lane)
            await save(connection, self.lane, row, State.SIGNED, Transaction(State.MINED, FINAL))
        await self.index(FINAL)
        return replace(tx, tx=Transaction(State.MINED, FINAL))

    async def index(self, block: Inclusion) -> None:
        base = self.genesis.blocks[0].hash
        async with transaction(self.pool) as connection:
            await chains.insert_blocks(
                connection, [BlockRow(block.block_number, block.block_hash, base, 1_700_000_001)]
            )
            epoch = await chains.begin_term(connection, CHAIN_ID)
            await chains.move_cursor(
                connection, CHAIN_ID, epoch, base, (block.block_number, block.block_hash), 1
            )
            await chains.raise_finality(connection, CHAIN_ID, epoch, block.block_number)

    async def undo(self, connection: Connection) -> None:
        """Undoes the final block as the indexer does, in the caller's database transaction."""
        await chains.lock_cursor(connection, CHAIN_ID)
        await undo_above(connection, 0)
        epoch = await chains.epoch(connection, CHAIN_ID)
        await chains.move_cursor(
            connection, CHAIN_ID, epoch, FINAL.block_hash, (0, self.genesis.blocks[0].hash), 1
        )


@pytest.fixture
async def settling(pool: Pool) -> Settling:
    lane = await a_lane(pool)
    return Settling(pool, lane, InFlightTransactions(pool, lane, OutcomeSink()))


async def test_a_final_mint_is_confirmed_and_a_deep_reorg_finds_it(settling: Settling) -> None:
    tx = await settling.mint()

    await settling.in_flight.apply([(tx, Finalized())])
    assert await states(settling.pool) == ["confirmed"]

    async with transaction(settling.pool) as connection:
        await settling.undo(connection)
    assert await states(settling.pool) == ["mined"]


async def test_a_mint_whose_final_block_was_undone_meanwhile_is_not_confirmed(
    settling: Settling,
) -> None:
    tx = await settling.mint()
    async with transaction(settling.pool) as connection:
        await settling.undo(connection)

    await settling.in_flight.apply([(tx, Finalized())])
    assert await states(settling.pool) == ["mined"]

    await settling.in_flight.apply([(tx, ReceiptLost())])
    assert await states(settling.pool) == ["published"], "the same bytes go out again"
    assert settling.in_flight.has_due


async def test_a_mint_whose_final_block_is_being_undone_is_not_confirmed(
    settling: Settling,
) -> None:
    tx = await settling.mint()
    async with transaction(settling.pool) as connection:
        await settling.undo(connection)
        confirming = asyncio.create_task(settling.in_flight.apply([(tx, Finalized())]))
        await asyncio.wait([confirming], timeout=HELD_BACK_SECONDS)
        assert not confirming.done()
    await confirming
    assert await states(settling.pool) == ["mined"]


async def test_a_mint_whose_place_another_final_block_took_is_not_confirmed(
    settling: Settling,
) -> None:
    tx = await settling.mint()
    async with transaction(settling.pool) as connection:
        await settling.undo(connection)
    await settling.index(Inclusion(1, a_hash("another block 1"), succeeded=True))

    await settling.in_flight.apply([(tx, Finalized())])

    assert await states(settling.pool) == ["mined"]
