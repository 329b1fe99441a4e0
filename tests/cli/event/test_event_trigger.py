"""`ltzd event trigger`: a signed event of a brand through the public port."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from ltzd.http.event_handler.models import EventMetadata
from ltzd.rules.brands.configuration import Brand, parse_brand_file
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection
from tests.support.commands import Outcome, ltzd
from tests.support.secret_files import write_secret
from tests.support.surfaces.event_surface import EventSurface, an_event_surface
from tests.support.waiting import until

BRAND = """
[brand]
id = "0x00000000000000000000000000000000000000aa"
name = "Demo"
domains = ["a.example"]
signed_bypass = true

[[events]]
type = "form_submit"
reward = 7
"""
EMAIL = "ada@a.example"


def demo() -> Brand:
    return parse_brand_file(BRAND, "demo.toml")


@pytest_asyncio.fixture
async def surface(database_url: str, data_dir: Path, db: Connection) -> AsyncIterator[EventSurface]:
    async with an_event_surface(database_url, data_dir) as surface:
        dev = {"adminUrl": "", "databaseUrl": database_url, "baseUrl": surface.url}
        write_secret(data_dir / "dev.json", json.dumps(dev))
        await brands.apply(db, demo(), surface.sealer)

        async def is_known() -> bool:
            return await surface.daemon.brands.refresh(db) or bool(surface.daemon.brands.domains)

        await until(is_known)
        yield surface


async def trigger(data_dir: Path, *arguments: object) -> Outcome:
    given = ("--brand", "Demo", "--email", EMAIL, *arguments)
    return await ltzd("event", "trigger", "form_submit", *given, "--data-dir", data_dir)


async def test_the_event_is_signed_and_recorded(
    surface: EventSurface, data_dir: Path, db: Connection
) -> None:
    shown = await trigger(data_dir, "--json", "--metadata", '{"page": 7}')
    assert shown.code == 0, shown.err
    answer = json.loads(shown.out[shown.out.index("{\n") :])  # after the surface's log
    row = await db.fetchrow("SELECT id, ltz, domain, metadata FROM events")
    repeated = await trigger(data_dir)

    assert answer["rewardAmount"] == 7
    assert row is not None
    assert (str(row["id"]), row["ltz"], row["domain"]) == (answer["eventId"], 7, "a.example")
    assert row["metadata"] == {"page": 7}
    assert repeated.code == 1
    assert repeated.err.startswith("ltzd: ltzd refused the event (4")
    assert EMAIL not in repeated.err


async def test_what_is_wrong_is_told_in_a_sentence(surface: EventSurface, data_dir: Path) -> None:
    nowhere = await trigger(data_dir, "--url", "http://127.0.0.1:1")
    metadata = await trigger(data_dir, "--metadata", "[7]")
    unknown = await ltzd(
        *("event", "trigger", "no_such_type", "--brand", "Demo", "--email", EMAIL),
        *("--data-dir", data_dir),
    )

    malformed = await trigger(data_dir, "--url", "http://[::1")
    no_url = await trigger(data_dir, "--url", "localhost:8000")
    not_utf8 = await trigger(data_dir, "--metadata", '{"page": "caf\udce9"}')
    address = await ltzd(
        *("event", "trigger", "form_submit", "--brand", "Demo", "--email", "ada"),
        *("--data-dir", data_dir),
    )

    assert nowhere.err.startswith("ltzd: Nothing answers at http://127.0.0.1:1/service-api/")
    assert malformed.err.startswith("ltzd: Nothing answers at http://[::1/service-api/")
    assert no_url.err == "ltzd: URL must begin with https://, http:// or /.\n"
    assert not_utf8.err.startswith("ltzd: An argument holds bytes that are not UTF-8")
    assert "userEmail" in address.err
    assert metadata.err.startswith("ltzd: --metadata must be a JSON object")
    assert unknown.err.startswith("ltzd: ltzd refused the event (4")
    outcomes = (nowhere, metadata, unknown, malformed, no_url, not_utf8, address)
    assert all(outcome.code == 1 for outcome in outcomes)


async def test_the_example_of_metadata_has_a_key_that_ltzd_reads(
    surface: EventSurface, data_dir: Path
) -> None:
    refused = await trigger(data_dir, "--metadata", "[7]")

    _, _, example = refused.err.strip().removesuffix(".").partition("such as ")
    assert json.loads(example).keys() <= EventMetadata.model_fields.keys()
