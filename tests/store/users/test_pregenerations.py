"""The rows of pregenerated wallets: one for each account and one for each request."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest

from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.store.database import Connection, Pool, connect, session
from ltzd.store.users import pregenerations
from ltzd.store.users.pregenerations import AccountWallet, RecordedPregeneration
from ltzd.values import Address
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.waiting import until

ADA = OAuthAccount("discord", "175928847299117063", "ada.l")
FOUND = AccountWallet("did:privy:cada", a_wallet(0xADA))
OTHER_BRAND = a_wallet(0xC)


async def record(
    pool: Pool,
    account: OAuthAccount = ADA,
    new: AccountWallet = FOUND,
    *,
    brand: Address = BRAND,
    metadata: Mapping[str, Any] | None = None,
) -> RecordedPregeneration:
    async with session(pool) as connection:
        return await pregenerations.record(connection, brand, account, new, metadata)


async def find(pool: Pool, account: OAuthAccount = ADA) -> AccountWallet | None:
    async with session(pool) as connection:
        return await pregenerations.find(connection, account)


async def test_an_account_has_no_wallet_until_one_is_recorded(pool: Pool) -> None:
    assert await find(pool) is None
    assert await record(pool) == RecordedPregeneration(FOUND, created_new=True)
    assert await find(pool) == FOUND


async def test_the_first_wallet_of_an_account_is_permanent(pool: Pool) -> None:
    await record(pool)
    other = AccountWallet("did:privy:ceve", a_wallet(0xE))
    assert await record(pool, new=other) == RecordedPregeneration(FOUND, created_new=False)
    assert await find(pool) == FOUND


async def test_an_account_is_identified_by_provider_and_id_and_not_by_username(pool: Pool) -> None:
    await record(pool)
    for username in ("eve", None):
        account = OAuthAccount("discord", ADA.user_id, username)
        assert not (await record(pool, account)).created_new
    for account in (
        OAuthAccount("github", ADA.user_id, ADA.username),
        OAuthAccount("discord", ADA.user_id + "0", ADA.username),
    ):
        assert await find(pool, account) is None
        assert (await record(pool, account)).created_new


async def test_account_ids_are_case_sensitive(pool: Pool) -> None:
    await record(pool, OAuthAccount("spotify", "Ada"))
    assert await find(pool, OAuthAccount("spotify", "ada")) is None


async def test_every_request_is_kept_with_its_brand_and_metadata(pool: Pool) -> None:
    document = {"campaign": "spring", "tags": [1, None, {"deep": "ünïcödé"}], "big": 10**30}
    await record(pool, metadata=document)
    await record(pool, brand=OTHER_BRAND)
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT * FROM pregeneration_requests ORDER BY id")
    kept = [(row["brand_id"], row["created_new"], row["metadata"]) for row in rows]
    assert kept == [(BRAND, True, document), (OTHER_BRAND, False, None)]
    assert {(row["oauth_provider"], row["oauth_user_id"]) for row in rows} == {
        (ADA.provider, ADA.user_id)
    }


async def test_of_concurrent_inserts_one_is_first_and_all_get_its_wallet(pool: Pool) -> None:
    claims = [AccountWallet(f"did:privy:c{n}", a_wallet(n)) for n in range(1, 31)]
    answers = await asyncio.gather(*(record(pool, new=claim) for claim in claims))
    assert Counter(answer.created_new for answer in answers) == {True: 1, False: 29}
    assert {answer.kept for answer in answers} == {await find(pool)}
    assert await value(pool, "SELECT count(*) FROM pregeneration_requests WHERE created_new") == 1


async def waits_for_a_lock(pool: Pool, waiting: Connection) -> bool:
    is_waiting: bool = await value(
        pool,
        "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1",
        waiting.get_server_pid(),
    )
    return is_waiting


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "undone"])
async def test_a_concurrent_insert_waits_for_the_first_to_commit_or_roll_back(
    pool: Pool, database_url: str, is_kept: bool
) -> None:
    other = AccountWallet("did:privy:ceve", a_wallet(0xE))
    writer, waiting = await connect(database_url, "writer"), await connect(database_url, "waiting")
    try:
        writing = writer.transaction()
        await writing.start()
        await pregenerations.record(writer, BRAND, ADA, FOUND, None)
        late = asyncio.create_task(
            pregenerations.record(waiting, OTHER_BRAND, ADA, other, {"late": True})
        )
        await until(lambda: waits_for_a_lock(pool, waiting))
        await (writing.commit() if is_kept else writing.rollback())
        expected = (
            RecordedPregeneration(FOUND, created_new=False)
            if is_kept
            else RecordedPregeneration(other, True)
        )
        assert await late == expected
    finally:
        await writer.close()
        await waiting.close()
    assert await find(pool) == expected.kept


async def test_no_request_is_stored_for_an_account_without_a_row(pool: Pool) -> None:
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await value(
            pool,
            "INSERT INTO pregeneration_requests (brand_id, oauth_provider, oauth_user_id, "
            "created_new) VALUES ($1, 'discord', '1', false)",
            BRAND,
        )


async def test_a_wallet_of_a_wrong_length_is_refused(pool: Pool) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await record(pool, new=AccountWallet("did:privy:cada", Address(b"\x01" * 19)))
    assert await find(pool) is None
    assert await value(pool, "SELECT count(*) FROM pregeneration_requests") == 0
