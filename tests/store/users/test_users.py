"""A user's id is derived from his subject and address, so concurrent processes agree on it."""

from uuid import uuid4

from ltzd.store.database import Pool, session, transaction
from ltzd.store.site_plugin.members import Member
from ltzd.store.users import users
from ltzd.store.users.users import MigratedUser
from ltzd.values import Address
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.sites.members import insert_member


def test_an_email_address_is_compared_without_regard_to_case() -> None:
    assert users.email_key("Ann@Shop.Example") == users.email_key("ann@shop.EXAMPLE")


def test_a_user_id_is_derived_from_subject_and_address() -> None:
    first = users.user_id("did:1", "ann@shop.example")

    assert first == users.user_id("did:1", "ann@shop.example")
    assert first != users.user_id("did:2", "ann@shop.example")
    assert first != users.user_id("did:1", "bob@shop.example")


async def test_a_user_is_found_by_his_key(pool: Pool) -> None:
    key = users.email_key("Ann@shop.example")
    user = users.User(users.user_id("did:1", key), key, "did:1", a_wallet(5))
    async with session(pool) as connection:
        assert await users.find(connection, [key]) == {}
        await connection.execute(
            "INSERT INTO users (id, email_key, identity_subject, wallet) VALUES ($1, $2, $3, $4)",
            user.id,
            user.email_key,
            user.identity_subject,
            user.wallet,
        )
        assert await users.find(connection, [key, "bob@shop.example"]) == {key: user}


# --- people who prove their addresses -----------------------------------------------------------

OLD, NEW, LAST = a_wallet(1), a_wallet(2), a_wallet(3)
ANN, BOB = (
    Member(BRAND, "site.example", number, name, uuid4(), OLD, None)
    for number, name in enumerate(("ann", "bob"), 1)
)


async def migrate(pool: Pool, subject: str, wallet: Address) -> list[MigratedUser]:
    """Moves Ann's address to a wallet, as the person `ann` with a token of this subject."""
    keys = [f"{ANN.user_id}@mail.example"]
    async with transaction(pool) as connection:
        return await users.migrate_wallets(connection, "ann", keys, subject, wallet)


async def wallets_of(pool: Pool, member: Member) -> tuple[Address, Address]:
    """Returns the wallets of the member's address and of the member at the site."""
    query = "SELECT u.wallet || m.wallet FROM users u JOIN site_members m ON m.user_id = u.id"
    both = await value(pool, f"{query} WHERE u.id = $1", member.user_id)
    return Address(both[:20]), Address(both[20:])


async def test_nobody_elses_address_moves_to_a_persons_wallet(pool: Pool) -> None:
    for member in (ANN, BOB):
        await insert_member(pool, member)
    assert await migrate(pool, "did:ann", NEW) == [MigratedUser(ANN.user_id, OLD)]
    assert await wallets_of(pool, ANN) == (NEW, NEW)
    assert await wallets_of(pool, BOB) == (OLD, OLD)


async def test_an_address_follows_its_person_to_every_wallet_and_subject(pool: Pool) -> None:
    await insert_member(pool, ANN)
    await migrate(pool, "did:ann", NEW)
    assert await migrate(pool, "did:ann", NEW) == []
    assert await migrate(pool, "did:other", NEW) == []
    assert await value(pool, "SELECT identity_subject FROM users") == "did:other"
    for before, after in ((NEW, LAST), (LAST, NEW), (NEW, LAST)):
        assert await migrate(pool, "did:other", after) == [MigratedUser(ANN.user_id, before)]
        assert await wallets_of(pool, ANN) == (after, after)
