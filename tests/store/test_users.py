"""One e-mail address has one user, whoever comes first."""

import asyncio
from uuid import uuid4

from ltzd.store import users
from ltzd.store.database import Pool, session, transaction
from ltzd.store.users import User
from tests.support.core import a_wallet


def a_user(email: str) -> User:
    return User(uuid4(), users.email_key(email), f"did:{email}", a_wallet(5))


async def test_a_new_user_is_new_once(pool: Pool) -> None:
    user, rival = a_user("Ann@Shop.Example"), a_user("ann@shop.example")
    async with transaction(pool) as connection:
        assert await users.insert(connection, [user]) == {"ann@shop.example": (user, True)}
    async with transaction(pool) as connection:
        assert await users.insert(connection, [rival]) == {"ann@shop.example": (user, False)}
    async with session(pool) as connection:
        assert await users.find(connection, "ann@shop.example") == user
        assert await users.find(connection, "Ann@Shop.Example") is None


async def test_of_many_at_once_exactly_one_makes_the_user(pool: Pool) -> None:
    async def insert() -> tuple[User, bool]:
        async with transaction(pool) as connection:
            there = await users.insert(connection, [a_user("ann@shop.example"), a_user("b@c.d")])
            return there["ann@shop.example"]

    found = await asyncio.gather(*(insert() for _ in range(20)))

    assert sum(is_new for _, is_new in found) == 1
    assert len({user.id for user, _ in found}) == 1


async def test_a_user_whose_maker_rolled_back_is_new_for_the_next(pool: Pool) -> None:
    try:
        async with transaction(pool) as connection:
            await users.insert(connection, [a_user("ann@shop.example")])
            raise RuntimeError
    except RuntimeError:
        pass
    async with transaction(pool) as connection:
        ((_, is_new),) = (await users.insert(connection, [a_user("ann@shop.example")])).values()
    assert is_new
