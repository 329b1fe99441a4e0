"""Brands found by id or name; disabling and pausing, which survive a new configuration."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ltzd.rules.brands.configuration import Brand
from ltzd.store import database, wakeups
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.records import Switch
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import address_of

NOBODY = address_of("0x" + "00" * 20)


def a_brand(number: int, name: str) -> Brand:
    return Brand(id=f"0x{number:040x}", name=name, domains=("shop.example",))


@pytest_asyncio.fixture
async def db(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def sealer(tmp_path: Path) -> Sealer:
    return Sealer.from_file(tmp_path / "master.key", create=True)


async def test_an_id_finds_its_brand_even_if_it_is_another_brands_name(
    db: Connection, sealer: Sealer
) -> None:
    first = a_brand(0xAB, "Same")
    confusing = a_brand(0xCD, first.id)
    for brand in (first, confusing, a_brand(0xEF, "Same")):
        await brands.apply(db, brand, sealer)

    async def names_of(text: str) -> list[str]:
        return [record.name for record in await brand_records.find(db, text)]

    assert await names_of(first.id) == ["Same"]
    assert await names_of(first.id.upper()) == ["Same"]
    assert await names_of("Same") == ["Same", "Same"]
    assert await names_of("same") == []
    assert await names_of("") == []


@pytest.mark.parametrize("name", ["disabled", "paused"])
async def test_disabling_and_pausing_are_idempotent_and_survive_an_apply(
    name: Switch, db: Connection, sealer: Sealer
) -> None:
    brand = a_brand(0xAB, "Demo")
    await brands.apply(db, brand, sealer)
    await brands.apply(db, a_brand(0xCD, "Other"), sealer)

    assert await brand_records.switch(db, brand.address, name, on=True)
    assert not await brand_records.switch(db, brand.address, name, on=True)
    revision = await brands.latest_revision(db)
    await brands.apply(db, a_brand(0xAB, "New"), sealer)
    record, other = await brand_records.list_all(db)
    assert (record.state, record.name, other.state) == (name, "New", "active")
    assert record.since(name) is not None

    assert await brand_records.switch(db, brand.address, name, on=False)
    assert not await brand_records.switch(db, brand.address, name, on=False)
    record, _ = await brand_records.list_all(db)
    assert (record.state, record.since(name)) == ("active", None)
    assert record.revision == revision + 2


async def test_a_brand_that_is_disabled_and_paused_is_shown_as_disabled(
    db: Connection, sealer: Sealer
) -> None:
    brand = a_brand(0xAB, "Demo")
    await brands.apply(db, brand, sealer)
    await brand_records.switch(db, brand.address, "paused", on=True)
    await brand_records.switch(db, brand.address, "disabled", on=True)
    (record,) = await brand_records.list_all(db)

    assert record.state == "disabled"
    assert record.paused_at is not None


async def test_an_unknown_brand_cannot_be_disabled_or_paused(db: Connection) -> None:
    assert not await brand_records.switch(db, NOBODY, "disabled", on=True)
    assert not await brand_records.switch(db, NOBODY, "paused", on=False)


async def test_resuming_wakes_the_mint_lane(db: Connection, sealer: Sealer) -> None:
    brand = a_brand(0xAB, "Demo")
    await brands.apply(db, brand, sealer)
    await brand_records.switch(db, brand.address, "paused", on=True)
    notified = asyncio.Event()
    await db.add_listener(wakeups.REWARDS, lambda *_: notified.set())

    await brand_records.switch(db, brand.address, "paused", on=False)

    await asyncio.wait_for(notified.wait(), timeout=20)
