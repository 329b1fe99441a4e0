"""`ltzd brand rotate-key`, `disable`, `enable`, `pause` and `resume` report and can be repeated."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from ltzd.rules.brands.configuration import Brand
from ltzd.store import wakeups
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.keys import FIELDS, KeyName, NewKeys, ReadableKey
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import iso
from tests.support.commands import Outcome, ltzd

DEMO = Brand(id="0x00000000000000000000000000000000000000aa", name="Demo", domains=("a.example",))
NAMED = f"Brand {DEMO.id} (Demo)"


@pytest.fixture
def sealer(data_dir: Path) -> Sealer:
    return Sealer.from_file(data_dir / "master.key")


@pytest_asyncio.fixture
async def keys(db: Connection, sealer: Sealer) -> NewKeys:
    applied = await brands.apply(db, DEMO, sealer)
    assert applied.keys is not None
    return applied.keys


@asynccontextmanager
async def woken(connection: Connection, *channels: str) -> AsyncIterator[None]:
    """The block notifies every one of these channels."""
    events = {channel: asyncio.Event() for channel in channels}
    for channel, event in events.items():
        await connection.add_listener(channel, lambda *_, event=event: event.set())
    yield
    async with asyncio.timeout(20):
        for event in events.values():
            await event.wait()


@pytest.mark.parametrize("key", FIELDS)
async def test_a_rotated_key_is_printed_once_as_json_and_the_old_one_counts_for_a_day(
    key: KeyName, data_dir: Path, db: Connection, keys: NewKeys, sealer: Sealer
) -> None:
    before = await brands.latest_revision(db)

    async with woken(db, wakeups.BRANDS):
        done = await ltzd("brand", "rotate-key", "Demo", "--key", key, "--data-dir", data_dir)

    assert list(done.json) == ["brandId", FIELDS[key]]
    assert done.json["brandId"] == DEMO.id
    new, old = done.json[FIELDS[key]], getattr(keys, key)
    assert new.partition("_")[0] == old.partition("_")[0]
    assert await brands.latest_revision(db) > before
    (until,) = (await brand_keys.read_ages(db, DEMO.address))[key].retired_until
    assert f"The previous key remains valid until {iso(until)}." in done.err
    assert new not in done.err
    if key == "api_key":
        hashes = await db.fetch("SELECT sealed FROM brand_secrets WHERE name = 'api_key'")
        assert [row[0] for row in hashes] == [hashlib.sha256(new.encode()).digest()]
        retired = await db.fetch("SELECT sealed FROM retired_secrets WHERE name = 'api_key'")
        assert [row[0] for row in retired] == [hashlib.sha256(old.encode()).digest()]
    else:
        secrets = await brand_keys.secrets_of(db, DEMO.address, key, sealer)
        assert [(secret.text, secret.until) for secret in secrets] == [(new, None), (old, until)]


@pytest.mark.parametrize(("name", "field"), FIELDS.items())
async def test_a_key_may_be_named_as_the_printed_json_names_it(
    name: KeyName, field: str, data_dir: Path, keys: NewKeys
) -> None:
    done = await ltzd("brand", "rotate-key", DEMO.id, "--key", field, "--data-dir", data_dir)

    assert (done.code, list(done.json)) == (0, ["brandId", field])
    assert done.json[field] != getattr(keys, name)
    assert f"has a new {name}" in done.err


async def test_an_unknown_key_is_refused_with_the_names_that_there_are(
    data_dir: Path, db: Connection, keys: NewKeys
) -> None:
    done = await ltzd("brand", "rotate-key", DEMO.id, "--key", "api-key", "--data-dir", data_dir)

    assert done.code == 2
    assert all(name in done.err for name in FIELDS)
    assert await brand_keys.brand_of_api_key(db, keys.api_key) == DEMO.address


async def test_revoking_ends_every_earlier_key_at_once(
    data_dir: Path, db: Connection, keys: NewKeys, sealer: Sealer
) -> None:
    rotate = ("brand", "rotate-key", DEMO.id, "--key", "security_key", "--data-dir", data_dir)
    await ltzd(*rotate)
    done = await ltzd(*rotate, "--revoke")

    (only,) = await brand_keys.secrets_of(db, DEMO.address, "security_key", sealer)
    assert only.text == done.json["securityKey"]
    assert "All previous keys are revoked." in done.err


@pytest.mark.parametrize("key", ["security_key", "webhook_secret", "verification_token"])
@pytest.mark.parametrize("options", [(), ("--revoke",)])
async def test_another_master_key_than_the_daemons_seals_no_new_key(
    options: tuple[str, ...],
    key: ReadableKey,
    data_dir: Path,
    db: Connection,
    keys: NewKeys,
    sealer: Sealer,
) -> None:
    (data_dir / "master.key").unlink()
    Sealer.from_file(data_dir / "master.key", create=True)

    done = await ltzd(
        *("brand", "rotate-key", DEMO.id, "--key", key, *options, "--data-dir", data_dir)
    )

    assert (done.code, done.out) == (1, "")
    assert "does not decrypt this database's rows" in done.err
    assert "--master-key-lost" in done.err
    (only,) = await brand_keys.secrets_of(db, DEMO.address, key, sealer)
    assert only.text == getattr(keys, key)


async def test_an_api_key_is_a_hash_and_needs_no_master_key(
    data_dir: Path, db: Connection, keys: NewKeys
) -> None:
    (data_dir / "master.key").unlink()
    Sealer.from_file(data_dir / "master.key", create=True)
    done = await ltzd("brand", "rotate-key", DEMO.id, "--key", "api_key", "--data-dir", data_dir)
    assert await brand_keys.brand_of_api_key(db, done.json["apiKey"]) == DEMO.address
    assert await brand_keys.brand_of_api_key(db, keys.api_key) == DEMO.address


async def test_a_key_whose_master_key_is_lost_is_replaced_on_demand(
    data_dir: Path, db: Connection, keys: NewKeys
) -> None:
    (data_dir / "master.key").unlink()
    other = Sealer.from_file(data_dir / "master.key", create=True)

    done = await ltzd(
        *("brand", "rotate-key", DEMO.id, "--key", "security_key", "--master-key-lost"),
        *("--data-dir", data_dir),
    )

    assert "The previous key is no longer valid: The security_key of brand" in done.err
    (only,) = await brand_keys.secrets_of(db, DEMO.address, "security_key", other)
    assert only.text == done.json["securityKey"]


async def test_a_dev_instance_tells_the_rotated_key_from_its_next_start_on(
    data_dir: Path, keys: NewKeys
) -> None:
    ours, others = data_dir / "brand.keys.json", data_dir / "other_brand.keys.json"
    ours.write_text(json.dumps(keys.as_json()))
    others.write_text(json.dumps(keys.as_json() | {"brandId": "0x" + "bb" * 20}))
    before = others.read_text()

    done = await ltzd("brand", "rotate-key", DEMO.id, "--key", "api_key", "--data-dir", data_dir)

    assert json.loads(ours.read_text()) == keys.as_json() | {"apiKey": done.json["apiKey"]}
    assert others.read_text() == before


async def test_a_key_that_does_not_exist_cannot_be_rotated(data_dir: Path) -> None:
    done = await ltzd("brand", "rotate-key", "Demo", "--key", "house_key", "--data-dir", data_dir)

    assert (done.code, done.out) == (2, "")


async def message(data_dir: Path, verb: str) -> str:
    done: Outcome = await ltzd("brand", verb, "Demo", "--data-dir", data_dir)
    assert (done.code, done.out) == (0, "")
    return done.err


async def test_disabling_and_enabling_are_told_and_repeatable(
    data_dir: Path, db: Connection, keys: NewKeys
) -> None:
    async with woken(db, wakeups.BRANDS):
        assert (await message(data_dir, "disable")).startswith(
            f"{NAMED} is disabled: within a second "
        )
    (record,) = await brand_records.list_all(db)
    assert record.state == "disabled"
    assert record.disabled_at is not None
    assert await message(data_dir, "disable") == (
        f"{NAMED} is disabled already, since {iso(record.disabled_at)}: nothing changes.\n"
    )
    assert await brand_records.list_all(db) == [record]

    async with woken(db, wakeups.BRANDS):
        assert (await message(data_dir, "enable")).startswith(f"{NAMED} is enabled: ")
    assert await message(data_dir, "enable") == f"{NAMED} is not disabled: nothing changes.\n"
    (record,) = await brand_records.list_all(db)
    assert record.state == "active"


async def test_pausing_and_resuming_are_told_and_repeatable(
    data_dir: Path, db: Connection, keys: NewKeys
) -> None:
    async with woken(db, wakeups.BRANDS):
        assert (await message(data_dir, "pause")).startswith(f"{NAMED} is paused: its events are ")
    (record,) = await brand_records.list_all(db)
    assert record.state == "paused"
    assert "is paused already, since" in await message(data_dir, "pause")

    async with woken(db, wakeups.BRANDS, wakeups.REWARDS):
        assert (await message(data_dir, "resume")).startswith(
            f"{NAMED} is resumed: its queued rewards"
        )
    assert await message(data_dir, "resume") == f"{NAMED} is not paused: nothing changes.\n"
