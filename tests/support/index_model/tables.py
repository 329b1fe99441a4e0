"""The index's tables, read into the shapes of the model."""

from collections import Counter
from typing import Any

from ltzd.store.database import Connection, Pool, transaction
from ltzd.values import ZERO_ADDRESS, Address, Hash32
from tests.support.index_model.state import ModelState, Reward

FACTS = (
    "transfers",
    "mints",
    "perk_transfers",
    "perk_claims",
    "charge_redemptions",
    "collection_facts",
    "item_settings",
    "purchases",
    "deal_facts",
)
DERIVED = ("balances", "tokens", "collections", "items", "deals")


async def insert_rewards(pool: Pool, rewards: tuple[Reward, ...]) -> None:
    async with transaction(pool) as connection:
        await connection.executemany(
            "INSERT INTO rewards (id, kind, brand_id, wallet, ltz) VALUES ($1, 1, $2, $3, $4)",
            [(reward.id, bytes(20), reward.wallet, reward.ltz) for reward in rewards],
        )


async def differences(pool: Pool, states: dict[Hash32, ModelState]) -> dict[str, Any]:
    """Each part of the index that differs from the state after the cursor's block: both sides.

    All is read in one snapshot, as a reader of the index sees it.
    """
    async with transaction(pool) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor = Hash32(await connection.fetchval("SELECT cursor_hash FROM chains"))
        indexed = await _indexed(connection)
        stray = await _rows_without_a_block(connection)
    state = states[cursor]
    expected: dict[str, Any] = {
        "balances": {
            wallet: held
            for wallet, held in state.balances.items()
            if held and wallet != ZERO_ADDRESS
        },
        "rewards": state.minted,
        "collections": state.collections,
        "tokens": state.tokens,
        "claims": dict(state.claims),
        "items": state.items,
        "deals": state.deals,
        "facts": dict(+state.facts),
        "stray": {},
    }
    in_tables = {**indexed, "stray": stray}
    return {
        name: (in_tables[name], expected[name])
        for name in expected
        if in_tables[name] != expected[name]
    }


async def _indexed(connection: Connection) -> dict[str, Any]:
    async def rows(sql: str) -> list[Any]:
        return list(await connection.fetch(sql))

    counts = {table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in FACTS}
    return {
        "balances": {
            Address(row[0]): int(row[1])
            for row in await rows("SELECT wallet, amount FROM balances WHERE amount <> 0")
        },
        "rewards": {
            row[0]: row[1]
            for row in await rows(
                "SELECT id, mint_block_number FROM rewards WHERE mint_block_hash IS NOT NULL"
            )
        },
        "collections": {
            row[0]: (Address(row[1]), int(row[2]), row[3], row[4])
            for row in await rows(
                "SELECT collection_id, payout, price, is_active, minted FROM collections"
            )
        },
        "tokens": {
            int(row[0]): (Address(row[1]), row[2])
            for row in await rows("SELECT token_id, holder, remaining FROM tokens")
        },
        "claims": {
            (Address(row[0]), row[1]): row[2]
            for row in await rows(
                "SELECT user_address, collection_id, max(claims) FROM perk_claims GROUP BY 1, 2"
            )
        },
        "items": {
            int(row[0]): (row[1], row[2])
            for row in await rows("SELECT item_id, stock, sold FROM items")
        },
        "deals": {
            row[0]: (row[1], int(row[2]))
            for row in await rows("SELECT deal_id, state, amount FROM deals")
        },
        "facts": dict(+Counter(counts)),
    }


async def _rows_without_a_block(connection: Connection) -> dict[str, int]:
    """By facts table, rows whose block is not kept or lies above the cursor."""
    stray: dict[str, int] = {}
    for table in FACTS:
        count = await connection.fetchval(
            f"""
            SELECT count(*)
              FROM {table} fact
             WHERE NOT EXISTS (SELECT FROM blocks
                                WHERE blocks.hash = fact.block_hash
                                  AND blocks.number = fact.block_number
                                  AND number <= (SELECT cursor_number FROM chains))
            """
        )
        if count:
            stray[table] = count
    return stray
