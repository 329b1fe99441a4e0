"""Brand configurations: applied atomically, with sealed keys."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from ltzd.errors import Misconfigured
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.store import database, wakeups
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.brands.keys import ReadableKey
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import address_of

FORM = EventRule(type="form_submit", reward=20)


def a_brand(number: int = 0xAA, name: str = "Demo", events: tuple[EventRule, ...] = ()) -> Brand:
    return Brand(id=f"0x{number:040x}", name=name, domains=("shop.example",), events=events)


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


async def test_a_new_brand_is_stored_completely_and_gets_its_keys_once(
    db: Connection, sealer: Sealer
) -> None:
    brand = a_brand(events=(FORM,))

    first = await brands.apply(db, brand, sealer)
    second = await brands.apply(db, a_brand(name="Other"), sealer)

    assert first.changed
    assert first.keys is not None
    assert re.fullmatch(r"ltzsk_[0-9a-f]{40}", first.keys.security_key)
    assert re.fullmatch(r"ltzak_[0-9a-f]{40}", first.keys.api_key)
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", first.keys.webhook_secret)
    assert first.keys.as_json()["brandId"] == brand.id
    assert first.keys.api_key not in repr(first)
    assert second.changed
    assert second.keys is None


async def test_a_loaded_configuration_equals_the_applied_one(
    db: Connection, sealer: Sealer
) -> None:
    first, other = a_brand(events=(FORM,)), a_brand(0xBB)
    await brands.apply(db, first, sealer)
    await brands.apply(db, other, sealer)

    assert await brands.load(db, first.address) == first
    assert await brands.load(db, address_of("0x" + "00" * 20)) is None
    assert await brands.load(db, other.address) == other


async def test_applying_the_same_configuration_again_changes_nothing(
    db: Connection, sealer: Sealer
) -> None:
    await brands.apply(db, a_brand(), sealer)
    revision = await brands.latest_revision(db)

    again = await brands.apply(db, a_brand(), sealer)

    assert not again.changed
    assert again.keys is None
    assert await brands.latest_revision(db) == revision


async def test_secrets_are_stored_sealed_and_the_api_key_as_a_hash(
    db: Connection, sealer: Sealer
) -> None:
    brand = a_brand()
    keys = (await brands.apply(db, brand, sealer)).keys
    assert keys is not None

    rows = {row["name"]: row for row in await db.fetch("SELECT * FROM brand_secrets")}

    assert rows["api_key"]["sealed"] == hashlib.sha256(keys.api_key.encode()).digest()
    stored = b"".join(row["sealed"] for row in rows.values())
    for text in keys.as_json().values():
        assert text.encode() not in stored
    readable: tuple[ReadableKey, ...] = ("security_key", "webhook_secret", "verification_token")
    for name in readable:
        valid = await brand_keys.secrets_of(db, brand.address, name, sealer)
        assert [(secret.text, secret.until) for secret in valid] == [(getattr(keys, name), None)]


async def test_a_failed_apply_leaves_nothing(
    db: Connection, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer, "key_id", "no such key")

    with pytest.raises(KeyError):
        await brands.apply(db, a_brand(), sealer)

    assert await brands.load(db, a_brand().address) is None
    assert await brands.latest_revision(db) == 0


async def test_two_concurrent_applies_create_one_set_of_keys(
    database_url: str, sealer: Sealer
) -> None:
    async def apply(name: str) -> brands.AppliedBrand:
        async with connected(database_url) as connection:
            return await brands.apply(connection, a_brand(name=name), sealer)

    outcomes = await asyncio.gather(*(apply(f"Demo {number}") for number in range(5)))

    assert [outcome.keys is not None for outcome in outcomes].count(True) == 1
    assert all(outcome.changed for outcome in outcomes)


async def test_a_change_is_announced(db: Connection, sealer: Sealer, database_url: str) -> None:
    notified = asyncio.Event()
    async with connected(database_url) as listener:
        await listener.add_listener(wakeups.BRANDS, lambda *_: notified.set())
        await brands.apply(db, a_brand(), sealer)
        await asyncio.wait_for(notified.wait(), timeout=20)


async def test_the_brand_cache_follows_the_database(db: Connection, sealer: Sealer) -> None:
    brand_cache = BrandCache()
    first, other = a_brand(), a_brand(0xBB)

    assert not await brand_cache.refresh(db)
    await brands.apply(db, first, sealer)
    assert brand_cache.get(first.address) is None
    assert await brand_cache.refresh(db)
    assert brand_cache.get(first.address) == first
    assert not await brand_cache.refresh(db)

    await brands.apply(db, other, sealer)
    await brands.apply(db, changed := a_brand(events=(FORM,)), sealer)
    assert await brand_cache.refresh(db)
    assert brand_cache.get(first.address) == changed
    assert brand_cache.get(other.address) == other
    assert brand_cache.domains == {"shop.example"}


async def test_a_brand_is_applied_only_over_the_expected_revision(
    db: Connection, sealer: Sealer
) -> None:
    brand = a_brand()
    assert await brands.apply_over(db, 1, brand, sealer) is None
    assert await brands.load(db, brand.address) is None
    first = await brands.apply_over(db, 0, brand, sealer)
    assert first is not None
    assert first.keys is not None
    revision = await brands.revision_of(db, brand.address)

    await brands.apply(db, a_brand(name="Theirs"), sealer)

    assert await brands.apply_over(db, revision, a_brand(name="Ours"), sealer) is None
    assert await brands.load(db, brand.address) == a_brand(name="Theirs")


async def test_the_brand_cache_treats_a_disabled_brand_as_unknown(
    db: Connection, sealer: Sealer
) -> None:
    brand_cache, brand, other = BrandCache(), a_brand(), a_brand(0xBB)
    other = other.model_copy(update={"domains": ("other.example",)})
    await brands.apply(db, brand, sealer)
    await brands.apply(db, other, sealer)

    await brand_records.switch(db, brand.address, "disabled", on=True)
    assert await brand_cache.refresh(db)
    assert brand_cache.get(brand.address) is None
    assert brand_cache.get(other.address) == other
    assert brand_cache.domains == {"other.example"}
    await brands.apply(db, changed := a_brand(name="New"), sealer)
    assert await brand_cache.refresh(db)
    assert brand_cache.get(brand.address) is None

    await brand_records.switch(db, brand.address, "disabled", on=False)
    assert await brand_cache.refresh(db)
    assert brand_cache.get(brand.address) == changed
    assert brand_cache.domains == {"shop.example", "other.example"}


async def test_the_brand_cache_has_paused_brands_and_revisions(
    db: Connection, sealer: Sealer
) -> None:
    brand_cache, brand = BrandCache(), a_brand()
    assert (brand_cache.is_paused(brand.address), brand_cache.revision_of(brand.address)) == (
        False,
        0,
    )
    await brands.apply(db, brand, sealer)
    await brand_cache.refresh(db)
    revisions = [brand_cache.revision_of(brand.address)]

    await brand_records.switch(db, brand.address, "paused", on=True)
    await brand_cache.refresh(db)
    assert brand_cache.is_paused(brand.address)
    assert brand_cache.get(brand.address) == brand
    revisions.append(brand_cache.revision_of(brand.address))
    await brand_records.switch(db, brand.address, "paused", on=False)
    await brand_cache.refresh(db)
    assert not brand_cache.is_paused(brand.address)
    revisions.append(brand_cache.revision_of(brand.address))
    await brand_keys.rotate(db, brand.address, "security_key", sealer, revoke=False)
    await brand_cache.refresh(db)
    revisions.append(brand_cache.revision_of(brand.address))

    assert revisions == sorted(set(revisions))
    assert revisions[0] == 1


async def test_revisions_commit_in_their_order(database_url: str, sealer: Sealer) -> None:
    """Otherwise a cache that saw revision 2 would miss a revision 1 that commits later."""
    async with connected(database_url) as slow, connected(database_url) as fast:
        pending = slow.transaction()
        await pending.start()
        await brands.apply(slow, a_brand(), sealer)
        later = asyncio.create_task(brands.apply(fast, a_brand(0xBB), sealer))
        _, waiting = await asyncio.wait([later], timeout=0.2)
        assert waiting
        await pending.commit()
        await later
        brand_cache = BrandCache()
        await brand_cache.refresh(fast)
    assert brand_cache.get(a_brand().address) is not None
    assert brand_cache.get(a_brand(0xBB).address) is not None


async def test_a_configuration_of_another_version_is_reported_and_can_be_replaced(
    db: Connection, sealer: Sealer
) -> None:
    brand = a_brand()
    await brands.apply(db, brand, sealer)
    await db.execute(
        """UPDATE brands SET configuration = configuration || '{"novelty": 1}', revision = 99"""
    )

    with pytest.raises(Misconfigured, match="apply the brand's file again"):
        await brands.load(db, brand.address)
    assert (await brands.apply(db, brand, sealer)).changed
    assert await brands.load(db, brand.address) == brand


async def test_an_unreadable_brand_keeps_its_old_configuration_and_blocks_no_other(
    db: Connection, sealer: Sealer
) -> None:
    brand_cache, strange = BrandCache(), a_brand()
    await brands.apply(db, strange, sealer)
    await brand_cache.refresh(db)
    await db.execute(
        """UPDATE brands SET configuration = '{}', revision = nextval('brand_revisions')"""
    )
    await brands.apply(db, a_brand(0xBB), sealer)

    assert await brand_cache.refresh(db)
    assert brand_cache.get(strange.address) == strange
    assert list(brand_cache.unreadable) == [strange.address]
    assert "apply the brand's file again" in brand_cache.unreadable[strange.address]
    assert brand_cache.get(a_brand(0xBB).address) is not None
    assert not await brand_cache.refresh(db)
    await brand_records.switch(db, strange.address, "disabled", on=True)
    await brand_cache.refresh(db)
    assert brand_cache.get(strange.address) is None
    await brand_records.switch(db, strange.address, "disabled", on=False)
    await brand_cache.refresh(db)
    assert brand_cache.get(strange.address) == strange
    await brands.apply(db, strange, sealer)
    await brand_cache.refresh(db)
    assert brand_cache.unreadable == {}


async def test_a_claim_total_is_kept_only_while_its_event_type_has_a_maximum(
    db: Connection, sealer: Sealer
) -> None:
    kept = EventRule(type="form_submit", max_total_claims=5)
    dropped = EventRule(type="custom_x", reward=1, max_total_claims=5)
    brand = a_brand(events=(kept, dropped))
    await brands.apply(db, brand, sealer)
    await db.executemany(
        "INSERT INTO event_claim_totals (brand_id, event_type, claims, maximum) "
        "VALUES ($1, $2, 3, 5)",
        [(brand.address, "form_submit"), (brand.address, "custom_x")],
    )

    unlimited = dropped.model_copy(update={"max_total_claims": None})
    await brands.apply(db, a_brand(events=(kept, unlimited)), sealer)

    assert [
        row["event_type"] for row in await db.fetch("SELECT event_type FROM event_claim_totals")
    ] == ["form_submit"]
