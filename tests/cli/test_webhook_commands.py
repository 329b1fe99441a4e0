"""`ltzd webhooks list`, `replay` and `enable`: the outcome of each webhook, and a new delivery."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from ltzd.rules.brands.configuration import Brand
from ltzd.store import wakeups
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.retention import batches
from ltzd.store.webhooks import queue as webhooks
from ltzd.store.webhooks.queue import DeliveryOutcome, DueWebhook
from ltzd.values import iso
from tests.support.commands import Outcome as Done
from tests.support.commands import ltzd

URL = "https://shop.example/hooks?token=t0psecret"
DEMO = Brand(id="0x" + "aa" * 20, name="Demo", domains=("a.example",), webhook_url=URL)
OTHER = Brand(id="0x" + "bb" * 20, name="Other", domains=("b.example",), webhook_url=URL)
NOW = datetime.now(UTC)


class Instance:
    def __init__(self, data_dir: Path) -> None:
        self._where = ("--data-dir", data_dir)

    async def webhooks(self, *arguments: object) -> Done:
        return await ltzd("webhooks", *arguments, *self._where)

    async def listed(self, *arguments: object) -> list[Any]:
        return list((await self.webhooks("list", "--json", *arguments)).json["webhooks"])


@pytest.fixture
def instance(data_dir: Path) -> Instance:
    return Instance(data_dir)


@pytest_asyncio.fixture(autouse=True)
async def _brands(db: Connection, data_dir: Path) -> None:
    for brand in (DEMO, OTHER):
        await brands.apply(db, brand, Sealer.from_file(data_dir / "master.key"))


async def a_webhook(db: Connection, brand: Brand = DEMO, hours_ago: float = 0, **is_: Any) -> UUID:
    wanted = {"state": "pending", "attempts": 0, "kind": "ltz_distributed", "revoked": False}
    wanted |= {"last_status": None, "last_error": None, "delivered_at": None} | is_
    id_, at = uuid4(), NOW - timedelta(hours=hours_ago)
    await db.execute(
        """
        INSERT INTO webhooks (id, brand_id, kind, subject, revoked, state, attempts, next_at,
                              last_status, last_error, created_at, delivered_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        """,
        id_,
        brand.address,
        wanted["kind"],
        uuid4(),
        wanted["revoked"],
        wanted["state"],
        wanted["attempts"],
        at + timedelta(hours=50),
        wanted["last_status"],
        wanted["last_error"],
        at,
        wanted["delivered_at"],
    )
    return id_


async def disable(db: Connection, brand: Brand = DEMO) -> None:
    due = DueWebhook(uuid4(), brand.address, URL, 1, "ltz_distributed", uuid4(), 1, NOW)
    await webhooks.settle(
        db, [DeliveryOutcome(due, NOW, "pending", NOW, 410, "", "it answered 410")]
    )


async def state_of(db: Connection, id_: UUID) -> tuple[str, int, bool]:
    """The state, the attempts, and whether the webhook is due."""
    row = await db.fetchrow(
        "SELECT state, attempts, next_at <= now() FROM webhooks WHERE id = $1", id_
    )
    return tuple(row)


def msg(id_: UUID) -> str:
    return f"msg_{id_.hex}"


async def test_webhooks_are_listed_the_newest_first_with_all_that_became_of_them(
    instance: Instance, db: Connection
) -> None:
    old = await a_webhook(
        db, OTHER, 3, state="delivered", attempts=2, last_status=204, delivered_at=NOW
    )
    new = await a_webhook(db, DEMO, 1, attempts=4, last_status=500, last_error="status 500\x1b[31m")
    subject = str(await db.fetchval("SELECT subject FROM webhooks WHERE id = $1", new))

    as_json, shown = await instance.webhooks("list", "--json"), await instance.webhooks("list")

    assert as_json.json["disabledEndpoints"] == []
    assert [row["id"] for row in as_json.json["webhooks"]] == [msg(new), msg(old)]
    assert as_json.json["webhooks"][0] == {
        "id": msg(new),
        "brandId": DEMO.id,
        "kind": "ltz_distributed",
        "subject": subject,
        "state": "pending",
        "revoked": False,
        "attempts": 4,
        "nextAt": iso(NOW + timedelta(hours=49)),
        "lastStatus": 500,
        "lastError": "status 500\x1b[31m",
        "createdAt": iso(NOW - timedelta(hours=1)),
        "deliveredAt": None,
    }
    assert as_json.json["webhooks"][1]["nextAt"] is None
    for expected in (
        *(msg(new), msg(old), DEMO.id, subject, "pending", "delivered"),
        f"status 500\\x1b[31m, next at {iso(NOW + timedelta(hours=49))}",
        f"status 204 at {iso(NOW)}",
    ):
        assert expected in shown.out
    assert "\x1b" not in shown.out
    assert "t0psecret" not in shown.out + as_json.out


async def test_a_list_is_of_one_brand_in_one_state_and_as_long_as_wanted(
    instance: Instance, db: Connection
) -> None:
    ids = [await a_webhook(db, DEMO, hours) for hours in (1, 2, 3)]
    exhausted = await a_webhook(db, DEMO, 4, state="exhausted", attempts=10)
    others = await a_webhook(db, OTHER, 5)

    async def listed(*arguments: object) -> list[str]:
        return [row["id"] for row in await instance.listed(*arguments)]

    assert await listed("--brand", "Demo") == [*map(msg, ids), msg(exhausted)]
    assert await listed("--brand", OTHER.id) == [msg(others)]
    assert await listed("--state", "exhausted") == [msg(exhausted)]
    assert await listed("--limit", 2) == [msg(ids[0]), msg(ids[1])]
    none = await instance.webhooks("list", "--state", "delivered")
    assert (none.code, none.out, none.err) == (0, "", "No webhook matches.\n")
    nobody = await instance.webhooks("list", "--brand", "Nobody")
    assert nobody.code == 1
    assert "No brand has the id or the name 'Nobody'" in nobody.err


async def test_webhooks_are_replayed_by_their_ids(instance: Instance, db: Connection) -> None:
    delivered = await a_webhook(db, state="delivered", attempts=1, delivered_at=NOW)
    exhausted = await a_webhook(db, state="exhausted", attempts=10)
    left = await a_webhook(db, state="exhausted", attempts=10)
    notified = []
    await db.add_listener(wakeups.WEBHOOKS, lambda *_: notified.append(1))

    done = await instance.webhooks("replay", msg(delivered), msg(exhausted), msg(exhausted))

    assert (done.code, done.out, done.err) == (0, "", "2 webhooks are due now.\n")
    assert await state_of(db, delivered) == await state_of(db, exhausted) == ("pending", 0, True)
    assert await state_of(db, left) == ("exhausted", 10, False)
    assert notified == [1]


async def test_a_brands_webhooks_since_a_time_are_replayed(
    instance: Instance, db: Connection
) -> None:
    early = await a_webhook(db, DEMO, 5, state="exhausted", attempts=10)
    late = await a_webhook(db, DEMO, 1, state="exhausted", attempts=10)
    delivered = await a_webhook(db, DEMO, 1, state="delivered", attempts=1)
    others = await a_webhook(db, OTHER, 1, state="exhausted", attempts=10)
    since = NOW - timedelta(hours=2)
    wanted = ("--brand", "Demo", "--since", since.replace(tzinfo=None).isoformat())

    done = await instance.webhooks("replay", *wanted, "--state", "exhausted")

    assert (done.code, done.err) == (0, f"Since {iso(since)}: 1 webhook is due now.\n")
    states = [await state_of(db, webhook) for webhook in (early, late, delivered, others)]
    assert [state for state, _, _ in states] == ["exhausted", "pending", "delivered", "exhausted"]

    again = await instance.webhooks("replay", *wanted)
    assert again.err.endswith(": 2 webhooks are due now.\n")


async def test_what_was_taken_back_is_not_replayed(instance: Instance, db: Connection) -> None:
    revoked = await a_webhook(db, state="exhausted", attempts=3, revoked=True)
    good = await a_webhook(db, state="exhausted", attempts=10)

    done = await instance.webhooks("replay", msg(good), msg(revoked))
    since = ("--since", "2020-01-01")
    others = await instance.webhooks("replay", "--brand", "Demo", *since)

    assert done.code == 1
    assert f"Webhook {msg(revoked)} was revoked" in done.err
    assert "Nothing changed." in done.err
    assert others.err.endswith(": 1 webhook is due now.\n")
    assert (await state_of(db, revoked))[0] == "exhausted"
    assert "revoked" in (await instance.webhooks("list")).out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give either the webhooks' ids, or --brand and --since."),
        (["--brand", "Demo"], "Give either the webhooks' ids, or --brand and --since."),
        (["--since", "2025-01-01"], "Give either the webhooks' ids, or --brand and --since."),
        (
            ["msg_" + "0" * 32, "--state", "exhausted"],
            "Give either the webhooks' ids, or --brand and --since.",
        ),
        (
            ["12"],
            "'12' is not a webhook id. `ltzd webhooks list` shows the ids, such as msg_….",
        ),
        (
            ["msg_" + "0" * 31 + "G"],
            (
                f"'msg_{'0' * 31}G' is not a webhook id. "
                "`ltzd webhooks list` shows the ids, such as msg_…."
            ),
        ),
        (["msg_" + "0" * 32], f"There is no webhook msg_{'0' * 32}. Nothing changed."),
        (
            ["--brand", "Demo", "--since", "yesterday"],
            (
                "--since 'yesterday' is neither a time such as 2025-01-31T12:00:00Z nor an age "
                "such as 90m, 12h or 7d."
            ),
        ),
        (
            ["--brand", "Demo", "--since", "0001-01-01T00:00:00+14:00"],
            "--since '0001-01-01T00:00:00+14:00' is outside of the years 1 to 9999.",
        ),
        (
            ["--brand", "Demo", "--since", "9999-12-31T23:59:59-14:00"],
            "--since '9999-12-31T23:59:59-14:00' is outside of the years 1 to 9999.",
        ),
        (
            ["--brand", "Demo", "--since", "999999d"],
            "--since '999999d' is outside of the years 1 to 9999.",
        ),
    ],
)
async def test_a_replay_of_nothing_is_a_sentence(
    instance: Instance, arguments: list[str], sentence: str
) -> None:
    done = await instance.webhooks("replay", *arguments)

    assert (done.code, done.out, done.err) == (1, "", f"ltzd: {sentence}\n")


async def test_a_disabled_endpoint_is_shown_and_enabled_once(
    instance: Instance, db: Connection
) -> None:
    waiting = await a_webhook(db, attempts=3)
    given_up = await a_webhook(db, state="exhausted", attempts=10)
    await disable(db)
    as_json, shown = await instance.webhooks("list", "--json"), await instance.webhooks("list")
    elsewhere = (await instance.webhooks("list", "--brand", "Other", "--json")).json

    done = await instance.webhooks("enable", "Demo")
    again = await instance.webhooks("enable", DEMO.id)

    assert as_json.json["disabledEndpoints"] == [
        {"brandId": DEMO.id, "disabledAt": iso(NOW), "reason": "it answered 410"}
    ]
    assert elsewhere["disabledEndpoints"] == []
    assert f"{DEMO.id} has been disabled since {iso(NOW)}: it answered 410." in shown.err
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        f"Brand {DEMO.id} (Demo) gets webhooks again. 1 webhook is due now.\n"
        "Exhausted webhooks are sent again only by `ltzd webhooks replay`.\n"
    )
    assert await state_of(db, waiting) == ("pending", 0, True)
    assert (await state_of(db, given_up))[0] == "exhausted"
    assert (again.code, again.err) == (
        1,
        f"ltzd: Brand {DEMO.id} (Demo) has no disabled endpoint. Nothing changed.\n",
    )
    assert (await instance.webhooks("list", "--json")).json["disabledEndpoints"] == []


BATCH = 2


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROWS", BATCH)


async def refuse_changes_of(db: Connection, id_: UUID) -> None:
    """From now on PostgreSQL refuses each change of this webhook."""
    await db.execute(
        f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE 'broken off' USING ERRCODE = 'query_canceled'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON webhooks FOR EACH ROW
            WHEN (OLD.id = '{id_}') EXECUTE FUNCTION refuse()
        """
    )


async def accept_changes(db: Connection) -> None:
    await db.execute("DROP TRIGGER refuse ON webhooks; DROP FUNCTION refuse")


@pytest.mark.usefixtures("_small_batches")
async def test_a_replay_that_ends_early_goes_on_where_it_says(
    instance: Instance, db: Connection
) -> None:
    """The rows of one moment are told apart by their ids; delivered ones are not sent twice."""
    same = {"state": "delivered", "attempts": 1, "delivered_at": NOW}
    made = [await a_webhook(db, DEMO, hours, **same) for hours in (5, 4, 3, 3, 3, 2, 1)]
    ids = sorted(made[:2], key=made.index) + sorted(made[2:5]) + made[5:]
    wanted = ("--brand", "Demo", "--since", "7d")
    await refuse_changes_of(db, ids[4])

    broken = await instance.webhooks("replay", *wanted)

    assert broken.code == 1
    assert "broke the command off" in broken.err
    progress = (
        f"4 webhooks so far. If this command ends early, repeat it with --after {msg(ids[3])}\n"
    )
    assert progress in broken.err
    states = [(await state_of(db, each))[0] for each in ids]
    assert states == ["pending"] * 4 + ["delivered"] * 3

    await accept_changes(db)
    await db.execute("UPDATE webhooks SET state = 'delivered' WHERE state = 'pending'")
    done = await instance.webhooks("replay", *wanted, "--after", msg(ids[3]))

    assert done.err.endswith(": 3 webhooks are due now.\n")
    states = [(await state_of(db, each))[0] for each in ids]
    assert states == ["delivered"] * 4 + ["pending"] * 3


@pytest.mark.usefixtures("_small_batches")
async def test_enabling_that_ends_early_is_repeated(instance: Instance, db: Connection) -> None:
    ids = [await a_webhook(db, DEMO, hours, attempts=3) for hours in (5, 4, 3, 2, 1)]
    await disable(db)
    await refuse_changes_of(db, ids[3])

    broken = await instance.webhooks("enable", "Demo")

    assert broken.code == 1
    assert "2 webhooks so far. If this command ends early, repeat it" in broken.err
    assert [await state_of(db, each) for each in ids] == (
        [("pending", 0, True)] * 2 + [("pending", 3, False)] * 3
    )
    assert await claimed(db) == [], "webhooks went out before all were due"

    await accept_changes(db)
    done = await instance.webhooks("enable", "Demo")

    assert "5 webhooks are due now." in done.err
    assert sorted(await claimed(db)) == sorted(ids)


async def claimed(db: Connection) -> list[UUID]:
    now = datetime.now(UTC)
    later = now + timedelta(minutes=1)
    return [due.id for due in await webhooks.claim(db, {DEMO.address: 9}, now, later)]


async def test_a_replay_does_not_continue_behind_another_brands_webhook(
    instance: Instance, db: Connection
) -> None:
    others = await a_webhook(db, OTHER, 1)
    wanted = ("--brand", "Demo", "--since", "7d")

    done = await instance.webhooks("replay", *wanted, "--after", msg(others))

    assert (done.code, done.err) == (
        1,
        f"ltzd: Brand {DEMO.id} (Demo) has no webhook {msg(others)}. Nothing changed.\n",
    )
