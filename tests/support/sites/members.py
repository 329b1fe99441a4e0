"""Rows of site members: as their log-ins, check-ins and links leave them in the database."""

from datetime import date, timedelta
from secrets import token_bytes
from typing import Any
from uuid import uuid4

from ltzd.rules.site_plugin.streaks import CheckIn, Streak
from ltzd.store.database import Pool, session, transaction
from ltzd.store.site_plugin import check_ins
from ltzd.store.site_plugin import links as site_links
from ltzd.store.site_plugin.check_ins import NewCheckIn
from ltzd.store.site_plugin.links import LockedCode
from ltzd.store.site_plugin.members import Member
from ltzd.values import Address
from tests.support.rows.core import a_hash, value

FIRST_DAY = date(2026, 1, 1)


async def insert_member(pool: Pool, member: Member, *, proven: bool = False) -> Member:
    """Inserts the member with an e-mail address of its own, which has the same wallet."""
    await value(
        pool,
        "INSERT INTO users (id, email_key, identity_subject, wallet, proven_by) "
        "VALUES ($1, $2, 'did:nobody', $3, $4) ON CONFLICT DO NOTHING",
        member.user_id,
        f"{member.user_id}@mail.example",
        member.wallet,
        "did:owner" if proven else None,
    )
    await value(
        pool,
        "INSERT INTO site_members "
        "(brand_id, host, site_user_id, username, email_key, user_id, wallet) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        member.brand_id,
        member.host,
        member.site_user_id,
        member.username,
        f"{member.user_id}@mail.example",
        member.user_id,
        member.wallet,
    )
    return member


async def insert_earnings(
    pool: Pool, brand: Address, wallet: Address, ltz: int, bought: int = 0
) -> None:
    """Writes what the indexer writes once the brand's rewards are mined."""
    await value(
        pool,
        "INSERT INTO earnings VALUES ($1, 'all', '1970-01-01', $2, $3, 1, $4) "
        "ON CONFLICT (brand_id, period, starts, wallet) "
        "DO UPDATE SET ltz = earnings.ltz + $3, bought = earnings.bought + $4",
        brand,
        wallet,
        ltz,
        bought,
    )


async def checked_in(
    pool: Pool, member: Member, ltz: int, *, own_ltz: int | None = None, mined: bool = True
) -> None:
    """Checks in on the next day that neither the member nor the wallet has claimed."""
    async with session(pool) as connection:
        snapshot = await check_ins.read_snapshot(connection, member)
        last = None if snapshot.streak is None else snapshot.streak.last_day
        claimed = [day for day in (last, snapshot.checked_in_on) if day is not None]
        day = max(claimed) + timedelta(days=1) if claimed else FIRST_DAY
        days = 1 if snapshot.streak is None else snapshot.streak.days + 1
        check_in = NewCheckIn(
            member=member,
            before=snapshot.streak,
            check_in=CheckIn(Streak(days, day, days), ltz),
            reward_id=uuid4(),
            budget=None,
            own_days=min(days, snapshot.own_days + 1),
            own_ltz=ltz if own_ltz is None else own_ltz,
        )
        assert await check_ins.write_check_in(connection, check_in)
    if mined:
        await mint(pool, check_in.reward_id)
        await insert_earnings(pool, member.brand_id, member.wallet, ltz)


async def mint(pool: Pool, reward: object) -> None:
    block = a_hash(str(reward))
    await value(
        pool,
        "UPDATE rewards SET mint_block_number = 1, mint_block_hash = $2, "
        "mint_transaction_hash = $2 WHERE id = $1",
        reward,
        block,
    )


async def linked(
    pool: Pool,
    member: Member,
    allowance: int = 500,
    *,
    wallet: Address | None = None,
    subject: str = "did:owner",
) -> None:
    """Links the member by a code of the owner `subject`."""
    code = LockedCode(token_bytes(32), subject, (wallet or member.wallet,), allowance)
    async with transaction(pool) as connection:
        assert await site_links.lock_member(connection, member) is not None
        await site_links.link(connection, member, code, wallet or member.wallet)


async def expire(pool: Pool) -> None:
    await value(pool, "UPDATE site_links SET expires_at = now() - interval '1 second'")


async def row(pool: Pool, sql: str, *arguments: Any) -> tuple[Any, ...]:
    async with session(pool) as connection:
        record = await connection.fetchrow(sql, *arguments)
    assert record is not None, sql
    return tuple(record)
