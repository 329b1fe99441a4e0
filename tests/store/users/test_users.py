"""A user's id is derived from his subject and address, so concurrent processes agree on it."""

from ltzd.store.database import Pool, session
from ltzd.store.users import users
from tests.support.rows.core import a_wallet


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
