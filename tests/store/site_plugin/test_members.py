"""The rows of sites' members: updates and links under concurrent writers."""

from uuid import UUID

from msgspec.structs import replace

from ltzd.store.database import Pool, session
from ltzd.store.site_plugin import links as site_links
from ltzd.store.site_plugin import members as site_members
from ltzd.store.site_plugin.members import Member, MemberRecord
from ltzd.store.users import registrations
from ltzd.store.users.users import User
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.sites.members import expire, linked

OWN, OTHER, THIRD = a_wallet(1), a_wallet(2), a_wallet(3)
ANN = User(UUID(int=1), "ann@site.example", "did:ann", OWN)
BEN = User(UUID(int=2), "ben@site.example", "did:ben", OTHER)


def a_member(user: User = ANN, **changes: object) -> Member:
    met = Member(BRAND, "site.example", 42, "ann", user.id, user.wallet, None)
    return replace(met, **changes)


async def kept(pool: Pool, member: Member, user: User = ANN) -> Member:
    async with session(pool) as connection:
        assert await registrations.insert_user(connection, user, BRAND, None)
        return await site_members.save(connection, member, user.email_key)


async def stored(
    pool: Pool, host: str = "site.example", site_user_id: int = 42
) -> MemberRecord | None:
    async with session(pool) as connection:
        return await site_members.find(connection, BRAND, host, site_user_id)


async def test_a_member_is_found_as_he_was_saved(pool: Pool) -> None:
    assert await stored(pool) is None
    assert await kept(pool, a_member()) == a_member()
    assert await stored(pool) == MemberRecord(a_member(), ANN.email_key)


async def test_the_same_user_id_at_another_site_is_another_member(pool: Pool) -> None:
    await kept(pool, a_member())
    await kept(pool, a_member(BEN, host="other.example"), BEN)

    assert await stored(pool) == MemberRecord(a_member(), ANN.email_key)
    assert await stored(pool, site_user_id=43) is None
    assert await value(pool, "SELECT count(*) FROM site_members") == 2


async def test_a_changed_username_keeps_the_linked_wallet(pool: Pool) -> None:
    member = await kept(pool, a_member())
    await linked(pool, member, wallet=OTHER)

    renamed = await kept(pool, a_member(username="anna"))

    assert renamed == a_member(username="anna", wallet=OTHER, subject="did:owner")


async def test_a_changed_email_address_is_another_user_without_a_proven_subject(pool: Pool) -> None:
    member = await kept(pool, a_member())
    await linked(pool, member, wallet=THIRD)

    assert await kept(pool, a_member(BEN), BEN) == a_member(BEN)
    assert await stored(pool) == MemberRecord(a_member(BEN), BEN.email_key)
    assert await kept(pool, a_member()) == a_member(), "the earlier user's proof is gone too"


async def test_an_expired_link_is_reported_and_ended_once(pool: Pool) -> None:
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
    assert await stored(pool) == now, "a new link is kept"


async def test_a_link_is_active_only_while_the_member_has_its_user_and_wallet(
    pool: Pool,
) -> None:
    """This also holds if a version without links wrote the member's row."""
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
