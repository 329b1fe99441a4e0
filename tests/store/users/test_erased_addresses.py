"""The key of the hashes that stand for erased addresses: made once, sealed, kept by a rotation."""

import asyncio
from uuid import uuid4

import pytest

from ltzd.errors import Misconfigured
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.encryption import rotation
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.retention import erasure
from ltzd.store.users.erased_addresses import ErasedAddresses, is_erased
from tests.support.rows.core import a_wallet, value

ANN, BOB = "ann@shop.example", "bob@shop.example"
OLD, NEW = b"\x01" * 32, b"\x02" * 32


async def insert(pool: Pool, email: str) -> None:
    async with session(pool) as connection:
        await connection.execute(
            "INSERT INTO users (id, email_key, identity_subject, wallet) VALUES ($1, $2, 'x', $3)",
            *(uuid4(), email, a_wallet(1)),
        )


async def erase(pool: Pool, email: str = ANN, key: bytes = OLD) -> None:
    await insert(pool, email)
    async with session(pool) as connection:
        await erasure.hide_addresses(connection, ErasedAddresses(Sealer([key])), [email])


async def is_found(pool: Pool, *keys: bytes) -> bool:
    async with session(pool) as connection:
        return await ErasedAddresses(Sealer(keys)).find_user(connection, ANN) is not None


async def test_without_an_erasure_there_is_no_key_and_nothing_is_found(pool: Pool) -> None:
    assert not await is_found(pool, OLD)
    assert await value(pool, "SELECT count(*) FROM erasure_keys") == 0


async def test_a_look_that_finds_no_secret_forgets_none_that_was_prepared_meanwhile(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased = ErasedAddresses(Sealer([OLD]))
    read = erased._read

    async def read_before_a_preparation(connection: Connection) -> bytes | None:
        secret = await read(connection)
        monkeypatch.setattr(erased, "_read", read)
        async with session(pool) as other:
            await erased.prepare(other)
        return secret

    monkeypatch.setattr(erased, "_read", read_before_a_preparation)
    async with session(pool) as connection:
        keys = await erased.keys_of(connection, [ANN])

    assert keys == [ANN, erased.prepared_key_of(ANN)]


async def test_a_process_that_looked_before_finds_a_user_who_is_erased_later(pool: Pool) -> None:
    erased = ErasedAddresses(Sealer([OLD]))
    async with session(pool) as connection:
        assert await erased.find_user(connection, ANN) is None
    await erase(pool)
    async with session(pool) as connection:
        user = await erased.find_user(connection, ANN)
    assert user is not None
    assert is_erased(user.email_key)


async def test_erasures_at_once_share_one_key(pool: Pool) -> None:
    await asyncio.gather(*(erase(pool, f"{number}@shop.example") for number in range(5)))
    assert await value(pool, "SELECT count(*) FROM erasure_keys") == 1
    assert await value(pool, "SELECT count(*) FROM users WHERE email_key LIKE '%@%'") == 0


async def test_a_rotation_of_the_master_key_keeps_erased_users(pool: Pool) -> None:
    await erase(pool)
    async with session(pool) as connection:
        counts = await rotation.rotate(connection, Sealer([NEW, OLD]))
    assert (counts["erasure_keys"].rows, counts["erasure_keys"].resealed) == (1, 1)
    assert await is_found(pool, NEW)


async def test_another_master_key_is_refused_instead_of_finding_nobody(pool: Pool) -> None:
    await erase(pool)
    with pytest.raises(Misconfigured, match="erasure key"):
        await is_found(pool, NEW)


async def test_the_key_is_never_inserted_in_a_transaction_that_may_be_rolled_back(
    pool: Pool,
) -> None:
    with pytest.raises(AssertionError):
        async with transaction(pool) as connection:
            await ErasedAddresses(Sealer([OLD])).prepare(connection)
    assert await value(pool, "SELECT count(*) FROM erasure_keys") == 0


async def test_addresses_are_found_together_whether_erased_or_not(pool: Pool) -> None:
    """As the first look of a process, which does not know the secret yet, and as a later one."""
    await erase(pool)
    await insert(pool, BOB)
    erased = ErasedAddresses(Sealer([OLD]))
    for _ in range(2):
        async with session(pool) as connection:
            found_users = await erased.find_users(connection, {ANN, BOB, "nobody@shop.example"})
        assert {key: is_erased(user.email_key) for key, user in found_users.items()} == {
            ANN: True,
            BOB: False,
        }


async def test_with_another_master_key_whoever_has_the_address_is_found(pool: Pool) -> None:
    await erase(pool)
    await insert(pool, BOB)
    erased = ErasedAddresses(Sealer([NEW]))
    async with session(pool) as connection:
        assert await erased.find_user(connection, BOB) is not None
        with pytest.raises(Misconfigured):
            await erased.find_users(connection, {ANN, BOB})
