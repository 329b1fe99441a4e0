"""New users count towards their brand's limit of new wallets an hour."""

import asyncio

from ltzd.rules.event_handler.brand_limits import wallets_of
from ltzd.store.database import Pool, session
from ltzd.store.users import registrations, users
from ltzd.store.users.users import User
from ltzd.values import Address
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.surfaces.event_action import a_brand


def a_user(name: str = "ann") -> User:
    key = f"{name}@shop.example"
    return User(users.user_id(f"did:{name}", key), key, f"did:{name}", a_wallet(len(name)))


async def insert_user(pool: Pool, user: User, maximum: int) -> bool:
    brand = a_brand(max_new_wallets_per_hour=maximum)
    async with session(pool) as connection:
        _, now = await registrations.wallets_this_hour(connection, BRAND)
        return await registrations.insert_user(connection, user, BRAND, wallets_of(brand, now))


async def this_hour(pool: Pool, brand: Address = BRAND) -> int:
    async with session(pool) as connection:
        return (await registrations.wallets_this_hour(connection, brand))[0]


async def test_a_new_user_counts_once_and_only_for_brands_with_a_limit(pool: Pool) -> None:
    assert await insert_user(pool, a_user(), 0)
    assert await this_hour(pool) == 0
    assert await insert_user(pool, a_user("bob"), 5)
    assert await insert_user(pool, a_user("bob"), 5)
    assert await insert_user(pool, a_user(), 5)
    assert await this_hour(pool) == 1
    assert await this_hour(pool, Address(bytes(20))) == 0
    async with session(pool) as connection:
        assert list((await users.find(connection, ["bob@shop.example"])).values()) == [
            a_user("bob")
        ]


async def test_a_user_above_the_brands_limit_is_not_written(pool: Pool) -> None:
    outcomes = await asyncio.gather(*(insert_user(pool, a_user("a" * n), 3) for n in range(1, 9)))

    assert sum(outcomes) == 3
    assert await value(pool, "SELECT count(*) FROM users") == 3
    assert await this_hour(pool) == 3


async def test_the_previous_hour_does_not_count(pool: Pool) -> None:
    assert await insert_user(pool, a_user(), 1)
    await value(pool, "UPDATE brand_usage SET window_start = window_start - interval '1 hour'")
    assert await this_hour(pool) == 0
