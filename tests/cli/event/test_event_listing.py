"""`ltzd event list` and `ltzd event tail`: the newest events, without their users."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from rich.console import Console

from ltzd.cli.event.listing import _table, line_of, new_events
from ltzd.rules.brands.configuration import Brand
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.event_handler.listing import EventSelection, ListedEvent
from ltzd.values import hex_of
from tests.support.commands import begin_ltzd, ltzd
from tests.support.rows.core import a_wallet

DEMO = Brand(id="0x" + "aa" * 20, name="Demo", domains=("a.example",))
OTHER = Brand(id="0x" + "bb" * 20, name="Other", domains=("b.example",))
EMAIL = "ada.lovelace@shop.example"
NOW = datetime.now(UTC)


@pytest_asyncio.fixture(autouse=True)
async def _brands(db: Connection, data_dir: Path) -> None:
    for brand in (DEMO, OTHER):
        await brands.apply(db, brand, Sealer.from_file(data_dir / "master.key"))


async def an_event(
    db: Connection,
    brand: Brand = DEMO,
    *,
    minutes_ago: float = 0,
    event_type: str = "form_submit",
    ltz: int = 100,
    failure: str | None = None,
) -> UUID:
    id_, user = uuid4(), uuid4()
    at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    await db.execute(
        "INSERT INTO users (id, email_key, identity_subject, wallet) VALUES ($1, $2, 'x', $3)",
        *(user, EMAIL + str(user), a_wallet(7)),
    )
    await db.execute(
        """
        INSERT INTO events (id, brand_id, event_type, email, user_id, domain, ltz, created_at)
        VALUES ($1, $2, $3, $4, $5, 'shop.example', $6, $7)
        """,
        *(id_, brand.address, event_type, EMAIL, user, ltz, at),
    )
    if ltz:
        await db.execute(
            """
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz, failed_at, failure)
            VALUES ($1, 1, $2, $3, $4, CASE WHEN $5::text IS NOT NULL THEN now() END, $5)
            """,
            *(id_, brand.address, a_wallet(7), ltz, failure),
        )
    return id_


async def listed(data_dir: Path, *options: object) -> list[str]:
    """The ids in the order of the list."""
    shown = await ltzd("event", "list", "--json", *options, "--data-dir", data_dir)
    return [event["eventId"] for event in shown.json["events"]]


async def test_events_are_listed_newest_first_over_all_brands(
    db: Connection, data_dir: Path
) -> None:
    old = await an_event(db, minutes_ago=90)
    other = await an_event(db, OTHER, minutes_ago=60, event_type="account_creation")
    failed = await an_event(db, minutes_ago=30, failure="LTZ says: too much")
    free = await an_event(db, minutes_ago=1, ltz=0)
    newest_first = list(map(str, (free, failed, other, old)))

    assert await listed(data_dir) == newest_first
    assert await listed(data_dir, "--limit", 2) == newest_first[:2]
    assert await listed(data_dir, "--brand", "Demo") == list(map(str, (free, failed, old)))
    assert await listed(data_dir, "--type", "account_creation") == [str(other)]
    assert await listed(data_dir, "--status", "failed") == [str(failed)]
    assert await listed(data_dir, "--status", "queued") == list(map(str, (other, old)))
    assert await listed(data_dir, "--since", "70m", "--until", "20m") == newest_first[1:3]
    assert await listed(data_dir, "--since", NOW.date() + timedelta(days=2)) == []


async def test_a_listed_event_has_its_state_and_not_its_user(
    db: Connection, data_dir: Path
) -> None:
    id_ = await an_event(db, OTHER, failure="LTZ says: too much")

    shown = await ltzd("event", "list", "--data-dir", data_dir)
    as_json = await ltzd("event", "list", "--json", "--data-dir", data_dir)

    assert as_json.json["events"] == [
        {
            "eventId": str(id_),
            "brandId": hex_of(OTHER.address),
            "brandName": OTHER.name,
            "eventType": "form_submit",
            "domain": "shop.example",
            "rewardAmount": 100,
            "status": "failed",
            "failure": "LTZ says: too much",
            "createdAt": as_json.json["events"][0]["createdAt"],
        }
    ]
    for text in (str(id_), "failed", "form_submit", "Other"):
        assert text in shown.out
    assert EMAIL not in shown.out + as_json.out


async def test_a_time_or_brand_that_is_wrong_is_refused(data_dir: Path) -> None:
    where = ("--data-dir", data_dir)
    time = await ltzd("event", "list", "--since", "yesterday", *where)
    brand = await ltzd("event", "list", "--brand", "nobody", *where)

    assert (time.code, time.out) == (1, "")
    assert "--since 'yesterday' is neither a time" in time.err
    for text in ("999999d", "0001-01-01T00:00:00+14:00"):
        time = await ltzd("event", "list", "--since", text, *where)
        assert (time.code, time.out) == (1, "")
        assert f"--since {text!r} is outside of the years 1 to 9999" in time.err
    assert brand.err.startswith("ltzd: No brand has the id or the name 'nobody'")


async def test_the_tail_has_each_event_once(db: Connection, database_url: str) -> None:
    await an_event(db, minutes_ago=10)
    early = await an_event(db, minutes_ago=5)
    since = EventSelection(since=datetime.now(UTC) - timedelta(minutes=6))
    seen: list[UUID] = []

    async def follow() -> None:
        async for event in new_events(db, since, poll_seconds=0.01):
            seen.append(event.id)
            if len(seen) == 1:
                # A transaction that began earlier commits after a younger one.
                seen_after.append(await an_event(db, OTHER))
                seen_after.append(await an_event(db, minutes_ago=0.05))
            if len(seen) == 3:
                return

    seen_after: list[UUID] = []
    await asyncio.wait_for(follow(), 30)

    assert seen[0] == early
    assert set(seen[1:]) == set(seen_after)


def a_listed_event(**changed: object) -> ListedEvent:
    values = {
        "id": uuid4(),
        "brand_id": DEMO.address,
        "brand_name": "A brand with a name that is long",
        "event_type": "social_media_engagement",
        "domain": "a.example",
        "ltz": 1_000_000,
        "created_at": NOW,
        "status": "published",
        "failure": None,
    }
    return ListedEvent(**(values | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "has_brand"), [(80, False), (100, True)])
def test_a_table_of_80_columns_keeps_ids_states_and_amounts_whole(
    width: int, has_brand: bool
) -> None:
    event = a_listed_event()
    console = Console(width=width, record=True, file=None)
    with console.capture() as shown:
        console.print(_table([event], width, has_brand=True))
    lines = shown.get().splitlines()

    assert len(lines) == 2
    assert max(map(len, lines)) <= width
    for text in (str(event.id), f"{NOW:%m-%d %H:%M}", "published", "1,000,000", "social"):
        assert text in lines[1]
    assert ("A brand" in lines[1]) == has_brand
    short = line_of(a_listed_event(ltz=100, event_type="form_submit", brand_name="Demo"))
    assert len(short) <= 80


@contextmanager
def not_ignored(number: signal.Signals) -> Iterator[None]:
    """Programs inherit an ignored signal, as those of a shell's background job do."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


async def test_the_tail_ends_quietly_when_its_pipe_is_closed_or_at_ctrl_c(
    db: Connection, data_dir: Path
) -> None:
    id_ = await an_event(db)
    with not_ignored(signal.SIGINT):
        process = await begin_ltzd(
            "event", "tail", "--since", "1h", "--json", "--data-dir", data_dir
        )
    assert process.stdout is not None
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(process.wait(), 60)
    errors = (await process.stderr.read()).decode()

    assert json.loads(line)["eventId"] == str(id_)
    assert process.returncode == 0
    assert errors == "Waiting for events; Ctrl-C ends this.\n"

    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        broken = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ltzd", "event", "tail", "--since", "1h"),
            *("--data-dir", str(data_dir)),
            stdout=closed,
            stderr=asyncio.subprocess.PIPE,
        )
    _, message = await asyncio.wait_for(broken.communicate(), 60)
    assert (broken.returncode, message.decode()) == (0, errors)
