"""Builders of core rows: a pool, a followed chain, queued rewards, lanes, running tasks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest_asyncio
from eth_hash.auto import keccak

from ltzd.chain.signing import Signer
from ltzd.rules.operator.fees import GWEI, Fees
from ltzd.rules.operator.references import LaneReferences
from ltzd.rules.operator.transactions import State, Transaction
from ltzd.rules.operator.wallet_history import REFERENCES_A_WORD
from ltzd.store.database import Connection, Pool, open_pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow, ChainIdentity
from ltzd.store.operator import lanes, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt, Intent, OpenTransaction
from ltzd.values import Address, Hash32
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode

BRAND = Address(b"\xb0" * 20)
MINTER = Signer(b"\x01" * 32)
FEES = Fees(3 * GWEI, GWEI)


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database_url)
    yield pool
    pool.terminate()


@asynccontextmanager
async def running(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Runs the loops during the block and cancels them at its end; fails if one ended before."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield tasks
    finally:
        dead = [task for task in tasks if task.done() and not task.cancelled()]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert not dead, "a loop ended by itself"


def a_hash(text: str) -> Hash32:
    return Hash32(keccak(text.encode()))


def a_wallet(number: int) -> Address:
    return Address(number.to_bytes(20, "big"))


async def follow(pool: Pool, node: FakeNode, first_block: int = 1) -> ChainIdentity:
    """Makes the database follow the node's chain; LTZ was deployed in `first_block`."""
    chain = ChainIdentity(CHAIN_ID, node.blocks[0].hash, LTZ_AT, first_block)
    base = node.blocks[first_block - 1]
    async with transaction(pool) as connection:
        await chains.start_following(
            connection, chain, BlockRow(base.number, base.hash, base.parent_hash, 1_700_000_000)
        )
    return chain


async def queue_reward(
    connection: Connection,
    wallet: Address | None = None,
    ltz: int = 100,
    kind: int = 1,
    brand: Address = BRAND,
) -> UUID:
    reward = uuid4()
    await connection.execute(
        "INSERT INTO rewards (id, kind, brand_id, wallet, ltz) VALUES ($1, $2, $3, $4, $5)",
        reward,
        kind,
        brand,
        wallet or a_wallet(0xA11CE),
        ltz,
    )
    return reward


async def queue_rewards(pool: Pool, count: int) -> list[UUID]:
    async with transaction(pool) as connection:
        return [await queue_reward(connection, a_wallet(number + 1)) for number in range(count)]


async def a_lane(pool: Pool, *, first_nonce: int = 0, first_seq: int = 0) -> Lane:
    """Begins a term of MINTER's lane; the first term creates the lane and the counter."""
    references = references_from(first_seq)
    async with transaction(pool) as connection:
        await lanes.create_counter(connection, CHAIN_ID, LTZ_AT, references.end_seq)
        lane = await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", first_nonce)
        await connection.execute(
            "UPDATE lanes SET next_seq = $3, end_seq = $4 "
            "WHERE chain_id = $1 AND wallet = $2 AND next_seq IS NULL",
            *(CHAIN_ID, MINTER.address, references.next_seq, references.end_seq),
        )
    return lane


def references_from(next_seq: int) -> LaneReferences:
    """A lane's references from `next_seq` to the end of its word."""
    return LaneReferences(next_seq, (next_seq // REFERENCES_A_WORD + 1) * REFERENCES_A_WORD)


def an_intent(nonce: int, rewards: Iterable[UUID] = (), next_seq: int = 0) -> Intent:
    """An intent of rewards without references, which take theirs from `next_seq` on."""
    ids = list(rewards)
    references = references_from(next_seq)
    seqs, references_after = references.take(len(ids))
    return Intent(
        nonce=nonce,
        to=LTZ_AT,
        data=b"\x01",
        gas_limit=100_000,
        ltz=100 * len(ids),
        rewards=ids,
        seqs=seqs,
        references=references,
        references_after=references_after,
    )


def an_attempt(text: str) -> Attempt:
    return Attempt(a_hash(text), text.encode(), FEES)


async def save(connection: Connection, lane: Lane, row: int, was: State, now: Transaction) -> None:
    """Saves a state change of one transaction as its lane does."""
    after = OpenTransaction(row, 0, 100_000, FEES, now, (), b"", 0.0)
    await transactions.save(connection, lane, [(Transaction(was), after)])


async def states(pool: Pool) -> list[str]:
    """Returns the states of all transactions in the order of nonces."""
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT state FROM transactions ORDER BY nonce")
    return [row["state"] for row in rows]


async def value(pool: Pool, sql: str, *arguments: object) -> Any:
    async with session(pool) as connection:
        return await connection.fetchval(sql, *arguments)
