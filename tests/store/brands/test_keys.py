"""Key rotation: a retired key is valid until its expiry and no longer."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from ltzd.errors import Misconfigured, NotFound
from ltzd.rules.brands.configuration import Brand
from ltzd.store import database
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.keys import BrandSecret, KeyName, NewKeys, Rotation, rotate, secrets_of
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address, address_of

BRAND = Brand(id="0x" + "aa" * 20, name="Demo", domains=("shop.example",))
KEY: KeyName = "security_key"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(url, "test")
    try:
        yield connection
    finally:
        await connection.close()


@pytest_asyncio.fixture
async def db(database_url: str) -> AsyncIterator[Connection]:
    async with connected(database_url) as connection:
        yield connection


@pytest.fixture
def sealer(tmp_path: Path) -> Sealer:
    return Sealer.from_file(tmp_path / "master.key", create=True)


@pytest_asyncio.fixture
async def keys(db: Connection, sealer: Sealer) -> NewKeys:
    applied = await brands.apply(db, BRAND, sealer)
    assert applied.keys is not None
    return applied.keys


async def texts(db: Connection, sealer: Sealer) -> list[str]:
    valid = await secrets_of(db, BRAND.address, "security_key", sealer)
    return [secret.text for secret in valid]


async def test_the_old_key_is_valid_for_a_day_beside_the_new_one(
    db: Connection, sealer: Sealer, keys: NewKeys
) -> None:
    rotation = await rotate(db, BRAND.address, KEY, sealer, revoke=False)

    assert rotation.previous_until is not None
    in_a_day = datetime.now(UTC) + timedelta(hours=24)
    assert abs(rotation.previous_until - in_a_day) < timedelta(minutes=1)
    assert await secrets_of(db, BRAND.address, "security_key", sealer) == [
        BrandSecret(rotation.key, None),
        BrandSecret(keys.security_key, rotation.previous_until),
    ]
    (other,) = await secrets_of(db, BRAND.address, "webhook_secret", sealer)
    assert other.text == keys.webhook_secret


async def test_an_expired_key_is_invalid_and_is_deleted_by_the_next_rotation(
    db: Connection, sealer: Sealer, keys: NewKeys
) -> None:
    await db.execute(
        """
        INSERT INTO retired_secrets (brand_id, name, expires_at, key_id, sealed)
        VALUES ($1, 'security_key', now(), 'x', 'x')
        """,
        BRAND.address,
    )

    assert await texts(db, sealer) == [keys.security_key]
    new = await rotate(db, BRAND.address, KEY, sealer, revoke=False)
    assert await texts(db, sealer) == [new.key, keys.security_key]
    assert await db.fetchval("SELECT count(*) FROM retired_secrets") == 1


async def test_concurrent_rotations_lose_no_key(
    database_url: str, db: Connection, sealer: Sealer, keys: NewKeys
) -> None:
    async def rotation() -> Rotation:
        async with connected(database_url) as connection:
            return await rotate(connection, BRAND.address, KEY, sealer, revoke=False)

    rotations = await asyncio.gather(*(rotation() for _ in range(4)))

    count = await texts(db, sealer)
    assert sorted(count) == sorted([keys.security_key, *(rotation.key for rotation in rotations)])
    assert count[-1] == keys.security_key


async def test_revoking_a_key_invalidates_it_and_all_earlier_ones(
    db: Connection, sealer: Sealer, keys: NewKeys
) -> None:
    await rotate(db, BRAND.address, KEY, sealer, revoke=False)
    await rotate(db, BRAND.address, "webhook_secret", sealer, revoke=False)
    last = await rotate(db, BRAND.address, KEY, sealer, revoke=True)

    assert last.previous_until is None
    assert await texts(db, sealer) == [last.key]
    assert len(await secrets_of(db, BRAND.address, "webhook_secret", sealer)) == 2


async def test_a_failed_rotation_keeps_the_key(
    db: Connection, sealer: Sealer, keys: NewKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = await brands.latest_revision(db)

    async def fail(*_: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(brand_keys, "_write", fail)
    with pytest.raises(ConnectionResetError):
        await rotate(db, BRAND.address, KEY, sealer, revoke=True)

    assert await texts(db, sealer) == [keys.security_key]
    assert await brands.latest_revision(db) == revision


async def test_a_retired_key_cannot_be_prolonged_or_brought_back_in_the_database(
    db: Connection, sealer: Sealer, keys: NewKeys
) -> None:
    new = await rotate(db, BRAND.address, KEY, sealer, revoke=False)
    await db.execute("UPDATE retired_secrets SET expires_at = expires_at + interval '1 year'")

    with capture_logs() as logs:
        assert await texts(db, sealer) == [new.key]
    (line,) = logs
    assert (line["event"], line["brand"]) == ("brands.retired_key_lost", BRAND.id)
    await db.execute(
        "UPDATE brand_secrets s SET sealed = r.sealed FROM retired_secrets r WHERE r.name = s.name"
    )
    with pytest.raises(Misconfigured, match="was changed or moved"):
        await texts(db, sealer)


async def test_a_key_that_cannot_be_opened_is_replaced_and_the_reason_reported(
    db: Connection, tmp_path: Path, keys: NewKeys
) -> None:
    other = Sealer.from_file(tmp_path / "other.key", create=True)
    with pytest.raises(Misconfigured, match="was sealed with master key"):
        await secrets_of(db, BRAND.address, "security_key", other)

    rotation = await rotate(db, BRAND.address, KEY, other, revoke=False)

    assert rotation.previous_until is None
    assert rotation.lost is not None
    assert "was sealed with master key" in rotation.lost
    assert await texts(db, other) == [rotation.key]


async def test_a_new_master_key_seals_retired_keys_too(
    db: Connection, sealer: Sealer, tmp_path: Path, keys: NewKeys
) -> None:
    old, both = tmp_path / "master.key", tmp_path / "both.key"
    Sealer.from_file(both, create=True)
    first = both.read_text()
    both.write_text(first + old.read_text())
    rotation = await rotate(db, BRAND.address, KEY, Sealer.from_file(both), revoke=False)
    both.write_text(first)

    assert await texts(db, Sealer.from_file(both)) == [rotation.key, keys.security_key]


async def test_an_unknown_brand_has_no_keys_and_gets_none(db: Connection, sealer: Sealer) -> None:
    nobody = address_of("0x" + "00" * 20)

    assert await secrets_of(db, nobody, "security_key", sealer) == []
    assert await brand_keys.read_ages(db, nobody) == {}
    with pytest.raises(NotFound):
        await rotate(db, nobody, KEY, sealer, revoke=False)


async def test_key_ages_include_creation_times_and_expiries(
    db: Connection, sealer: Sealer, keys: NewKeys
) -> None:
    before = await brand_keys.read_ages(db, BRAND.address)
    rotation = await rotate(db, BRAND.address, KEY, sealer, revoke=False)
    two = await rotate(db, BRAND.address, KEY, sealer, revoke=False)
    after = await brand_keys.read_ages(db, BRAND.address)

    assert list(after) == list(brand_keys.FIELDS)
    assert after["security_key"].created_at > before["security_key"].created_at
    assert after["security_key"].retired_until == (two.previous_until, rotation.previous_until)
    assert after["api_key"] == before["api_key"]


async def test_no_key_appears_in_a_repr(db: Connection, sealer: Sealer, keys: NewKeys) -> None:
    rotation = await rotate(db, BRAND.address, KEY, sealer, revoke=False)
    valid = await secrets_of(db, BRAND.address, "security_key", sealer)

    for text in (keys.security_key, rotation.key):
        assert text not in repr((keys, rotation, valid))


async def test_a_key_is_valid_for_its_brand_and_its_purpose_until_it_expires(
    db: Connection, sealer: Sealer, keys: NewKeys
) -> None:
    other = Brand(id="0x" + "bb" * 20, name="Other", domains=("other.example",))
    other_keys = (await brands.apply(db, other, sealer)).keys
    assert other_keys is not None
    names: tuple[KeyName, ...] = ("security_key", "api_key", "verification_token")
    new, _ = [
        {name: (await rotate(db, brand.address, name, sealer, revoke=False)).key for name in names}
        for brand in (BRAND, other)
    ]

    async def digests() -> set[bytes]:
        return set(await brand_keys.verifying_digests(db, BRAND.address, sealer))

    async def brand_of(key: str) -> Address | None:
        return await brand_keys.brand_of_api_key(db, key)

    accepted = [new["api_key"], keys.api_key, new["verification_token"], keys.verification_token]
    with capture_logs() as logs:
        assert await texts(db, sealer) == [new["security_key"], keys.security_key]
    assert await digests() == {hashlib.sha256(key.encode()).digest() for key in accepted}
    assert [await brand_of(key) for key in accepted] == [BRAND.address] * 2 + [None] * 2
    assert await brand_of(other_keys.api_key) == other.address

    await db.execute("UPDATE retired_secrets SET expires_at = now()")
    with capture_logs() as later_logs:
        assert await texts(db, sealer) == [new["security_key"]]
    assert logs == later_logs == [], "no other key is opened in vain"
    assert await digests() == {hashlib.sha256(key.encode()).digest() for key in accepted[::2]}
    assert [await brand_of(key) for key in accepted[:2]] == [BRAND.address, None]
