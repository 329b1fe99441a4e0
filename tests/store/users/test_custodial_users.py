"""Custodial users: a name keeps its first user, and concurrent writes happen once."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from ltzd.errors import Misconfigured
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.store.database import Connection, Pool
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.users import custodial_users
from ltzd.store.users.custodial_users import AccountName, CustodialUser, SealedUser
from ltzd.values import Address
from tests.support.rows.core import a_wallet
from tests.support.waiting import until

ANN = AccountName("email", "ann@shop.example")
DISCORD = AccountName("discord", "308994132968210433")
LOGIN = AccountName("subject", "https://login.example/ user-7")
OTHER_LOGIN = AccountName("subject", "https://login.example/ user-8")


@pytest_asyncio.fixture
async def db(pool: Pool) -> AsyncIterator[Connection]:
    async with pool.acquire() as connection:
        yield connection


def a_user(number: int) -> SealedUser:
    return SealedUser(f"ltzd:{number}", a_wallet(number), "key", b"sealed")


async def rows_in(db: Connection, table: str) -> int:
    return int(await db.fetchval(f"SELECT count(*) FROM {table}"))


async def test_a_name_finds_the_user_created_for_it(db: Connection) -> None:
    assert await custodial_users.find(db, ANN) is None

    assert await custodial_users.create(db, ANN, a_user(1))
    assert not await custodial_users.create(db, ANN, a_user(2))
    assert await custodial_users.create(db, DISCORD, a_user(3))

    assert await custodial_users.find(db, ANN) == CustodialUser("ltzd:1", a_wallet(1))
    assert await custodial_users.find(db, DISCORD) == CustodialUser("ltzd:3", a_wallet(3))
    assert await rows_in(db, "custodial_users") == 2, "no user without a name is left"


async def test_fifty_concurrent_creations_create_one_user(pool: Pool) -> None:
    async def make(number: int) -> bool:
        async with pool.acquire() as connection:
            return await custodial_users.create(connection, ANN, a_user(number))

    made = await asyncio.gather(*map(make, range(50)))

    assert sum(made) == 1
    async with pool.acquire() as connection:
        actual = await custodial_users.find(connection, ANN)
        assert actual is not None
        assert actual.subject == f"ltzd:{made.index(True)}"
        assert await rows_in(connection, "custodial_users") == 1


async def test_two_users_never_have_one_wallet(db: Connection) -> None:
    await custodial_users.create(db, ANN, a_user(1))

    with pytest.raises(asyncpg.UniqueViolationError):
        await custodial_users.create(
            db, DISCORD, SealedUser("ltzd:2", a_wallet(1), "key", b"sealed")
        )

    assert await custodial_users.find(db, DISCORD) is None, "the rolled back user leaves no row"


async def test_a_user_is_owned_once(db: Connection) -> None:
    await custodial_users.create(db, ANN, a_user(1))
    await custodial_users.create_person(db, LOGIN, a_user(2))
    await custodial_users.create_person(db, OTHER_LOGIN, a_user(3))

    assert await custodial_users.set_owner(db, "ltzd:1", "ltzd:2", ANN)
    assert not await custodial_users.set_owner(db, "ltzd:1", "ltzd:3", ANN)
    assert not await custodial_users.set_owner(db, "ltzd:1", "ltzd:2", ANN)

    assert await custodial_users.find_root(db, LOGIN) == "ltzd:2"
    assert await custodial_users.wallets_of(db, "ltzd:2") == (a_wallet(1), a_wallet(2))
    assert await custodial_users.wallets_of(db, "ltzd:1") == (a_wallet(1), a_wallet(2))
    assert await custodial_users.wallets_of(db, "ltzd:3") == (a_wallet(3),)


async def test_only_verified_names_count_as_accounts(db: Connection) -> None:
    await custodial_users.create(db, DISCORD, a_user(1))
    assert await custodial_users.accounts_of(db, "ltzd:1") == ()

    await custodial_users.create_person(db, LOGIN, a_user(2))
    await custodial_users.set_owner(db, "ltzd:1", "ltzd:2", DISCORD)
    await custodial_users.add_name(db, AccountName("github", "583231"), "ltzd:2")
    await custodial_users.add_name(db, ANN, "ltzd:2")

    await custodial_users.create(db, AccountName("tiktok", "someone-7"), a_user(3))
    await custodial_users.set_owner(db, "ltzd:3", "ltzd:2", ANN)
    expected = (OAuthAccount("discord", DISCORD.text), OAuthAccount("github", "583231"))
    assert await custodial_users.accounts_of(db, "ltzd:1") == expected
    assert await custodial_users.accounts_of(db, "ltzd:2") == expected
    assert await custodial_users.accounts_of(db, "ltzd:4") == ()


async def test_names_are_returned_in_the_order_of_the_query(db: Connection) -> None:
    await custodial_users.create(db, DISCORD, a_user(1))
    await custodial_users.create_person(db, LOGIN, a_user(2))

    actual = await custodial_users.read_ownership(db, [LOGIN, ANN, DISCORD])

    assert [(each.name, each.user, each.owner) for each in actual] == [
        (LOGIN, "ltzd:2", "ltzd:2"),
        (ANN, None, None),
        (DISCORD, "ltzd:1", None),
    ]


async def test_a_name_belongs_to_one_user(db: Connection) -> None:
    await custodial_users.create_person(db, LOGIN, a_user(1))
    await custodial_users.create_person(db, OTHER_LOGIN, a_user(2))

    assert await custodial_users.add_name(db, ANN, "ltzd:1")
    assert not await custodial_users.add_name(db, ANN, "ltzd:2")

    assert await custodial_users.find(db, ANN) == CustodialUser("ltzd:1", a_wallet(1))


async def test_transactions_on_the_same_names_wait_for_each_other_without_deadlock(
    pool: Pool,
) -> None:
    """Each transaction holds its locks to the end, and the order of names causes no deadlock."""
    order: list[str] = []

    async def settle(names: list[AccountName], entered: asyncio.Event, go: asyncio.Event) -> None:
        async with pool.acquire() as connection, connection.transaction():
            await custodial_users.lock(connection, names)
            entered.set()
            await go.wait()
            order.append(names[0].kind)

    first, second, go = asyncio.Event(), asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(settle([ANN, DISCORD], first, go))]
    await first.wait()
    tasks.append(asyncio.create_task(settle([DISCORD, ANN], second, go)))

    async def waits() -> bool:
        async with pool.acquire() as connection:
            return bool(
                await connection.fetchval(
                    """
                    SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
                     WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
                    """
                )
            )

    await until(waits)
    assert not second.is_set()
    go.set()
    await asyncio.gather(*tasks)

    assert order == ["email", "discord"]


async def test_the_list_has_names_kinds_and_owners(db: Connection) -> None:
    await custodial_users.create(db, ANN, a_user(1))
    await custodial_users.create_person(db, LOGIN, a_user(2))
    await custodial_users.create(db, DISCORD, a_user(3))
    await custodial_users.set_owner(db, "ltzd:1", "ltzd:2", ANN)

    listed = await custodial_users.list_newest(db, 10)

    assert {(each.subject, each.wallet, each.owner, each.names) for each in listed} == {
        ("ltzd:1", a_wallet(1), "ltzd:2", ((ANN, True),)),
        ("ltzd:2", a_wallet(2), "ltzd:2", ((LOGIN, True),)),
        ("ltzd:3", a_wallet(3), None, ((DISCORD, False),)),
    }
    assert [each.subject for each in await custodial_users.list_newest(db, 1)] == ["ltzd:3"]
    assert await custodial_users.count(db) == 3


def test_names_and_sealed_keys_appear_in_no_repr() -> None:
    assert "ann" not in repr(ANN)
    assert "sealed" not in repr(a_user(1)).replace("SealedUser", "")


# --- sealed wallet keys -------------------------------------------------------------------------

OLD, NEW = Sealer([b"\x01" * 32]), Sealer([b"\x02" * 32])
WALLET = a_wallet(7)


def test_a_wallets_key_opens_only_for_its_user_and_its_wallet() -> None:
    sealed = OLD.seal_wallet_key(b"secret", "ltzd:7", WALLET)

    assert OLD.open_wallet_key(sealed, OLD.key_id, "ltzd:7", WALLET) == b"secret"
    for subject, wallet in (("ltzd:8", WALLET), ("ltzd:7", a_wallet(8)), ("", WALLET)):
        with pytest.raises(Misconfigured, match="changed or moved in the database"):
            OLD.open_wallet_key(sealed, OLD.key_id, subject, wallet)


def test_a_brands_sealed_key_cannot_be_opened_as_a_wallets_nor_a_wallets_as_a_brands() -> None:
    brand = Address(WALLET)
    sealed = OLD.seal("secret", brand, "ltzd:7")

    with pytest.raises(Misconfigured, match="changed or moved"):
        OLD.open_wallet_key(sealed, OLD.key_id, "ltzd:7", WALLET)
    with pytest.raises(Misconfigured, match="changed or moved"):
        OLD.open(OLD.seal_wallet_key(b"secret", "ltzd:7", WALLET), OLD.key_id, brand, "ltzd:7")


def test_with_several_master_keys_the_first_seals_and_all_open() -> None:
    sealed = OLD.seal_wallet_key(b"secret", "ltzd:7", WALLET)
    both = Sealer([b"\x02" * 32, b"\x01" * 32])

    assert both.key_ids == {OLD.key_id, NEW.key_id}
    assert both.key_id == NEW.key_id
    assert both.sealing_with(OLD.key_id).key_id == OLD.key_id
    assert both.sealing_with(OLD.key_id).key_ids == both.key_ids
    assert both.alone().key_ids == {NEW.key_id}
    assert both.open_wallet_key(sealed, OLD.key_id, "ltzd:7", WALLET) == b"secret"
    with pytest.raises(Misconfigured, match=f"sealed with master key {OLD.key_id}"):
        both.alone().open_wallet_key(sealed, OLD.key_id, "ltzd:7", WALLET)
