"""The user in a reward's webhook if the reward has no event."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
import pytest_asyncio

from ltzd.rules.brands.configuration import Brand
from ltzd.store.database import Pool, session
from ltzd.store.site_plugin import links as site_links
from ltzd.store.site_plugin.members import Member
from ltzd.store.users.erased_addresses import PREFIX
from ltzd.store.webhooks import bodies as webhook_bodies
from ltzd.store.webhooks import queue as webhooks
from ltzd.values import Address
from tests.support.rows.core import a_wallet, value
from tests.support.services.webhooks import Receiver, World
from tests.support.sites.members import insert_member, linked

CHECK_IN, MILESTONE = 3, 4
CLAIMS = {
    CHECK_IN: """
    INSERT INTO check_ins
           (brand_id, wallet, day, streak, ltz, reward_id, host, site_user_id, own_streak)
    VALUES ($1, $2, '2026-01-01', 1, 100, $3, 'site.example', 1, 1)
    """,
    MILESTONE: """
    INSERT INTO milestone_claims (brand_id, wallet, days, ltz, reward_id, host, site_user_id)
    VALUES ($1, $2, 7, 100, $3, 'site.example', 1)
    """,
}


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool) -> World:
    return World(database_url, pool, Receiver("https://shop.example"))


async def named(world: World, brand: Brand) -> tuple[str, str | None] | None:
    """Returns user id and e-mail address of the one webhook, or nothing if it has no body."""
    now = datetime.now(UTC)
    async with session(world.pool) as connection:
        (due,) = await webhooks.claim(
            connection, {brand.address: 1}, now, now + timedelta(minutes=1)
        )
        bodies = await webhook_bodies.render(connection, [due])
    if not bodies:
        return None
    body = msgspec.json.decode(bodies[due.id])
    return body["userId"], body["email"]


async def log_in(
    world: World, brand: Address, email: str, wallet: Address, *, linked: bool = False
) -> UUID:
    user = uuid4()
    await value(
        world.pool,
        """
        INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id,
                                  wallet, subject, linked_at)
        SELECT $1, 'site.example', count(*) + 1, 'somebody', $2, $3, $4,
               CASE WHEN $5 THEN 'subject' END, CASE WHEN $5 THEN now() END
          FROM site_members
        """,
        brand,
        email,
        user,
        wallet,
        linked,
    )
    return user


@pytest.mark.parametrize("kind", [CHECK_IN, MILESTONE])
async def test_a_site_rewards_webhook_names_the_member_with_the_wallet(
    world: World, kind: int
) -> None:
    brand, other = await world.brand("/hooks"), await world.brand()
    reward = await world.owed(brand, kind=kind, event=False)
    wallet = await value(world.pool, "SELECT wallet FROM rewards")
    await value(world.pool, "DELETE FROM users")
    await log_in(world, other.address, "another.brands@shop.example", wallet)
    await log_in(world, brand.address, "linked@shop.example", wallet, linked=True)
    user = await log_in(world, brand.address, "ada@shop.example", wallet)

    await world.mint(reward)

    assert await named(world, brand) == (str(user), "ada@shop.example")


async def test_a_wallets_user_takes_precedence_over_members_with_the_wallet(world: World) -> None:
    brand = await world.brand("/hooks")
    reward = await world.owed(brand, kind=CHECK_IN, event=False)
    wallet = await value(world.pool, "SELECT wallet FROM rewards")
    await log_in(world, brand.address, "site@shop.example", wallet)

    await world.mint(reward)

    user, email = await value(world.pool, "SELECT (id::text, email_key) FROM users")
    assert await named(world, brand) == (user, email)


@pytest.mark.parametrize("kind", [CHECK_IN, MILESTONE])
async def test_a_brand_learns_no_other_address_of_the_member_who_earned_a_reward(
    world: World, kind: int
) -> None:
    """The wallet belongs to an address that the brand was never given."""
    brand = await world.brand("/hooks")
    reward = await world.owed(brand, kind=kind, event=False)
    wallet = await value(world.pool, "SELECT wallet FROM rewards")
    user = await log_in(world, brand.address, "at.the.site@shop.example", wallet, linked=True)
    await log_in(world, brand.address, "another.member@shop.example", wallet)
    await value(world.pool, CLAIMS[kind], brand.address, wallet, reward)

    await world.mint(reward)

    assert await named(world, brand) == (str(user), "at.the.site@shop.example")


@pytest.mark.parametrize("kind", [CHECK_IN, MILESTONE])
async def test_a_linked_members_reward_is_announced_although_the_link_has_ended_since(
    world: World, kind: int
) -> None:
    """The wallet's owner has no user here, so that only the ended link names one."""
    brand = await world.brand("/hooks")
    reward = await world.owed(brand, kind=kind, event=False)
    wallet = await value(world.pool, "SELECT wallet FROM rewards")
    await value(world.pool, "DELETE FROM users")
    ann = Member(brand.address, "site.example", 1, "ann", uuid4(), a_wallet(0xA), None)
    await insert_member(world.pool, ann)
    await linked(world.pool, ann, wallet=wallet)
    await value(world.pool, CLAIMS[kind], brand.address, wallet, reward)
    async with session(world.pool) as connection:
        assert await site_links.end_member_link(connection, ann)

    await world.mint(reward)

    assert await named(world, brand) == (str(ann.user_id), f"{ann.user_id}@mail.example")


async def test_a_reward_without_a_user_has_no_webhook_body(world: World) -> None:
    brand = await world.brand("/hooks")
    reward = await world.owed(brand, kind=CHECK_IN, event=False)
    await value(world.pool, "DELETE FROM users")

    await world.mint(reward)

    assert await named(world, brand) is None


async def test_an_erased_address_is_null_in_webhooks(world: World) -> None:
    """Of an event whose address has expired, and of a check-in of an erased user."""
    brand = await world.brand("/hooks")
    reward = await world.owed(brand)
    await value(world.pool, "UPDATE events SET email = NULL")
    await world.mint(reward)
    event = await named(world, brand)
    assert event is not None
    assert event[1] is None

    other = await world.brand("/other")
    reward = await world.owed(other, kind=CHECK_IN, event=False)
    await value(world.pool, "UPDATE users SET email_key = $1 || id", PREFIX)
    await world.mint(reward)
    check_in = await named(world, other)
    assert check_in is not None
    assert check_in[1] is None
