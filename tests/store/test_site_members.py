"""Members of sites as rows: kept up to date, and linked, whoever else writes meanwhile."""

from dataclasses import replace
from uuid import UUID

from ltzd.store import payments, site_members
from ltzd.store.database import Pool, session
from ltzd.store.site_members import Known, Member
from ltzd.store.users import User
from ltzd.values import Address
from tests.support.core import BRAND, a_wallet, value

OWN, OTHER, THIRD = a_wallet(1), a_wallet(2), a_wallet(3)
ANN = User(UUID(int=1), "ann@site.example", "did:ann", OWN)
BEN = User(UUID(int=2), "ben@site.example", "did:ben", OTHER)


def a_member(user: User = ANN, **changes: object) -> Member:
    met = Member(BRAND, "site.example", 42, "ann", user.id, user.wallet, None)
    return replace(met, **changes)  # type: ignore[arg-type]


async def kept(pool: Pool, member: Member, user: User = ANN) -> Member:
    async with session(pool) as connection:
        assert await payments.meet(connection, user, BRAND, None)
        return await site_members.keep(connection, member, user.email_key)


async def found(pool: Pool, host: str = "site.example", site_user_id: int = 42) -> Known | None:
    async with session(pool) as connection:
        return await site_members.find(connection, BRAND, host, site_user_id)


async def linked(pool: Pool, member: Member, *wallets: Address) -> Member | None:
    async with session(pool) as connection:
        return await site_members.link(connection, member, "did:somebody", wallets)


async def test_a_member_is_found_as_he_was_kept(pool: Pool) -> None:
    assert await found(pool) is None
    assert await kept(pool, a_member()) == a_member()
    assert await found(pool) == Known(a_member(), ANN.email_key)


async def test_the_same_number_at_another_site_is_another_member(pool: Pool) -> None:
    await kept(pool, a_member())
    await kept(pool, a_member(BEN, host="other.example"), BEN)

    assert await found(pool) == Known(a_member(), ANN.email_key)
    assert await found(pool, site_user_id=43) is None
    assert await value(pool, "SELECT count(*) FROM site_members") == 2


async def test_a_new_name_leaves_a_linked_wallet_alone(pool: Pool) -> None:
    member = await kept(pool, a_member())
    await linked(pool, member, OTHER)

    renamed = await kept(pool, a_member(username="anna"))

    assert renamed == a_member(username="anna", wallet=OTHER, subject="did:somebody")
    assert await value(pool, "SELECT linked_at IS NOT NULL FROM site_members")


async def test_another_e_mail_address_is_another_user_who_has_shown_nothing(pool: Pool) -> None:
    member = await kept(pool, a_member())
    await linked(pool, member, THIRD)

    assert await kept(pool, a_member(BEN), BEN) == a_member(BEN)
    assert await found(pool) == Known(a_member(BEN), BEN.email_key)
    assert await value(pool, "SELECT linked_at IS NULL FROM site_members")


async def test_a_link_prefers_the_e_mail_addresss_wallet_to_the_first(pool: Pool) -> None:
    member = await kept(pool, a_member())

    assert await linked(pool, member, OTHER, OWN) == a_member(subject="did:somebody")
    assert await linked(pool, member, OTHER, THIRD) == a_member(
        wallet=OTHER, subject="did:somebody"
    )
    # Also from another one, which an earlier link gave.
    assert await linked(pool, member, THIRD, OWN) == a_member(subject="did:somebody")


async def test_a_link_that_was_begun_under_another_address_changes_nothing(pool: Pool) -> None:
    member = await kept(pool, a_member())
    await kept(pool, a_member(BEN), BEN)

    assert await linked(pool, member, OWN) is None
    assert await found(pool) == Known(a_member(BEN), BEN.email_key)
