"""A row that PostgreSQL refuses to change stops no other row, and is done once it is repaired."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from ltzd.deliveries.cleanup import Cleanup
from ltzd.deliveries.redemption_recheck import RedemptionRecheck
from ltzd.store.database import Pool, session
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.wakeups import BLOCKS
from tests.deliveries.test_cleanup import Pauses
from tests.support.rows.core import BRAND, a_hash, a_wallet, running, value
from tests.support.rows.refusals import refusing
from tests.support.services.webhooks import SEALER, Receiver, World
from tests.support.waiting import until

Claim = Callable[[], Awaitable[bool]]

_NONCE = (
    "(brand_id, nonce, request_id, created_at) "
    f"VALUES ('\\x{BRAND.hex()}', 'a', gen_random_uuid(), now() - interval '100 days')"
)
_REST = timedelta(seconds=61)
"""Longer than the rest of a brand whose webhooks are not claimed."""


@dataclass
class Case:
    """`begin` is called while the first of two rows is refused, and begins the work of both.

    `others_done` and `all_done` tell what is done; `retry` begins the next round of the loop.
    """

    refused: AbstractAsyncContextManager[None]
    loop: AbstractAsyncContextManager[Any]
    begin: Callable[[], Awaitable[Any]]
    others_done: Claim
    all_done: Claim
    line: str
    retry: Callable[[], None] = lambda: None


async def redemptions(world: World) -> Case:
    await _followed_chain(world.pool)
    refused = await _lost_redemption(world.pool, "2026-01-01")
    await _lost_redemption(world.pool, "2026-01-02")

    return Case(
        refusing(world.pool, "site_redemptions", f"OLD.id = '{refused}'"),
        running(RedemptionRecheck(world.pool, world.wakeups).run()),
        _nothing,
        lambda: _is_count(world.pool, "site_redemptions WHERE state = 'reversed'", 1),
        lambda: _is_count(world.pool, "site_redemptions WHERE state = 'reversed'", 2),
        "site_redemption.not_rechecked",
        lambda: world.wakeups.notify(BLOCKS),
    )


async def claims(world: World) -> Case:
    made = await _webhooks(world, "NEW.attempts > OLD.attempts", "webhooks.not_claimed")
    return replace(made, retry=lambda: world.advance(_REST))


async def outcomes(world: World) -> Case:
    return await _webhooks(world, "NEW.state = 'delivered'", "webhook.outcome_refused")


async def _webhooks(world: World, when: str, line: str) -> Case:
    brands = [await world.brand("/hooks") for _ in range(2)]
    owed = [await world.owed(brand) for brand in brands]
    refused = f"{when} AND OLD.brand_id = '\\x{brands[0].address.hex()}'"
    return Case(
        refusing(world.pool, "webhooks", refused),
        world.sending(),
        lambda: world.mint(*owed),
        lambda: _is_count(world.pool, "webhooks WHERE state = 'delivered'", 1),
        lambda: _is_count(world.pool, "webhooks WHERE state = 'delivered'", 2),
        line,
    )


async def expired(world: World) -> Case:
    """The refused row's table is cleaned before the others."""
    await _insert(world.pool, "request_nonces", _NONCE)
    await _insert(world.pool, "gas_spent", "VALUES (now()::date - 100, 'did:ann', 0, 5)")
    pauses = Pauses()

    return Case(
        refusing(world.pool, "request_nonces", "true", on="DELETE"),
        running(Cleanup(world.pool, ErasedAddresses(SEALER), sleep=pauses).run()),
        _nothing,
        lambda: _is_count(world.pool, "gas_spent", 0),
        lambda: _is_count(world.pool, "request_nonces", 0),
        "cleanup.failed",
        pauses.end,
    )


async def _nothing() -> None:
    """The rows are there before the loop begins."""


async def _insert(pool: Pool, table: str, values: str) -> None:
    async with session(pool) as connection:
        await connection.execute(f"INSERT INTO {table} {values}")


async def _is_count(pool: Pool, rows: str, count: int) -> bool:
    number: int = await value(pool, f"SELECT count(*) FROM {rows}")
    return number == count


async def _followed_chain(pool: Pool) -> None:
    async with session(pool) as connection:
        await connection.execute(
            """
            INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, epoch, cursor_number,
                                cursor_hash, head_number, final_number)
            VALUES (31337, $1, $2, 1, 1, 9, $1, 9, 9)
            """,
            a_hash("0"),
            a_wallet(1),
        )


async def _lost_redemption(pool: Pool, lost_at: str) -> UUID:
    """A redemption whose payment is lost and cannot come any more."""
    redemption: UUID = await value(
        pool,
        f"""
        INSERT INTO site_redemptions
               (id, brand_id, wallet, perk_id, name, category, item_id, price, confirmation_code,
                state, completed_at, paid_block_hash, paid_log_index, paid_block_number,
                paid_transaction_hash, payment_lost_at)
        VALUES (gen_random_uuid(), $1, $2, gen_random_uuid(), 'Mug', 'goods', 1, 5, '{lost_at}',
                'done', now(), $3, 0, 7, $3, '{lost_at}')
     RETURNING id
        """,
        BRAND,
        a_wallet(2),
        a_hash(lost_at),
    )
    return redemption


@pytest.mark.parametrize("case", [redemptions, claims, outcomes, expired])
async def test_a_refused_row_stops_no_other_row(
    world: World, receiver: Receiver, case: Callable[[World], Awaitable[Case]]
) -> None:
    made = await case(world)
    with capture_logs() as lines:
        async with made.loop:
            async with made.refused:
                await made.begin()
                await until(made.others_done)

                async def is_told() -> bool:
                    return made.line in [line["event"] for line in lines]

                await until(is_told)
                assert not await made.all_done()

            async def are_done() -> bool:
                made.retry()
                return await made.all_done()

            await until(are_done)
    assert [line["event"] for line in lines].count(made.line) == 1
    assert len(receiver.posts["/hooks"]) == (2 if case in {claims, outcomes} else 0)
