"""Members of sites as rows: kept up to date, and linked, whoever else writes meanwhile."""

from dataclasses import replace
from uuid import UUID

from ltzd.store import payments
from ltzd.store.database import Pool, session
from ltzd.store.site_plugin import links as site_links
from ltzd.store.site_plugin import members as site_members
from ltzd.store.site_plugin.members import Member, MemberRecord
from ltzd.store.users.users import User
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.sites.members import expire, linked

OWN, OTHER, THIRD = a_wallet(1), a_wallet(2), a_wallet(3)
ANN = User(UUID(int=1), "ann@site.example", "did:ann", OWN)
BEN = User(UUID(int=2), "ben@site.example", "did:ben", OTHER)


def a_member(user: User = ANN, **changes: object) -> Member:
    met = Member(BRAND, "site.example", 42, "ann", user.id, user.wallet, None)
    return replace(met, **changes)  # type: ignore[arg-type]


async def kept(pool: Pool, member: Member, user: User = ANN) -> Member:
    async with session(pool) as connection:
        assert await payments.insert_user(connection, user, BRAND, None)
        return await site_members.save(connection, member, user.email_key)


async def stored(
    pool: Pool, host: str = "site.example", site_user_id: int = 42
) -> MemberRecord | None:
    async with session(pool) as connection:
        return await site_members.find(connection, BRAND, host, site_user_id)


async def test_a_member_is_found_as_he_was_kept(pool: Pool) -> None:
    assert await stored(pool) is None
    assert await kept(pool, a_member()) == a_member()
    assert await stored(pool) == MemberRecord(a_member(), ANN.email_key)


async def test_the_same_number_at_another_site_is_another_member(pool: Pool) -> None:
    await kept(pool, a_member())
    await kept(pool, a_member(BEN, host="other.example"), BEN)

    assert await stored(pool) == MemberRecord(a_member(), ANN.email_key)
    assert await stored(pool, site_user_id=43) is None
    assert await value(pool, "SELECT count(*) FROM site_members") == 2


async def test_a_new_name_leaves_a_linked_wallet_alone(pool: Pool) -> None:
    member = await kept(pool, a_member())
    await linked(pool, member, wallet=OTHER)

    renamed = await kept(pool, a_member(username="anna"))

    assert renamed == a_member(username="anna", wallet=OTHER, subject="did:owner")


async def test_another_e_mail_address_is_another_user_who_has_shown_nothing(pool: Pool) -> None:
    member = await kept(pool, a_member())
    await linked(pool, member, wallet=THIRD)

    assert await kept(pool, a_member(BEN), BEN) == a_member(BEN)
    assert await stored(pool) == MemberRecord(a_member(BEN), BEN.email_key)
    assert await kept(pool, a_member()) == a_member(), "nor has he shown it to whom he was"


async def test_a_link_whose_time_is_over_is_told_and_settled_once(pool: Pool) -> None:
    member = await kept(pool, a_member())
    await linked(pool, member, wallet=OTHER)
    assert await stored(pool) == MemberRecord(
        a_member(wallet=OTHER, subject="did:owner"), ANN.email_key
    )
    await expire(pool)

    ended = MemberRecord(a_member(wallet=OTHER), ANN.email_key, has_ended_link=True)
    assert await stored(pool) == ended
    async with session(pool) as connection:
        await site_links.clear_ended_link(connection, member)
        assert await stored(pool) == MemberRecord(a_member(), ANN.email_key)
        await linked(pool, member, wallet=THIRD)
        await site_links.clear_ended_link(connection, member)
    now = MemberRecord(a_member(wallet=THIRD, subject="did:owner"), ANN.email_key)
    assert await stored(pool) == now, "a new one is left alone"


async def test_a_link_lasts_only_for_the_user_and_the_wallet_that_it_was_made_for(
    pool: Pool,
) -> None:
    """Also if a version that knows no links has written the member's row."""
    member = await kept(pool, a_member())
    await kept(pool, a_member(BEN, site_user_id=43), BEN)
    changes: dict[str, tuple[object, object]] = {
        "wallet": (THIRD, OWN),
        "user_id": (BEN.id, ANN.id),
    }
    for column, (other, own) in changes.items():
        await linked(pool, member)
        change = f"UPDATE site_members SET {column} = $1 WHERE site_user_id = 42"
        await value(pool, change, other)
        now = await stored(pool)
        assert now is not None
        assert (now.member.subject, now.has_ended_link) == (None, True)
        await value(pool, change, own)
