"""`ltzd event show` and `ltzd event retry`: everything about an event except its user."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from ltzd.rules.brands.configuration import Brand
from ltzd.store import wakeups
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import records as brand_records
from ltzd.store.database import Connection, Pool, open_pool, session
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.event_handler.history import EventHistory, history_of
from ltzd.store.operator import rewards, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.values import checksummed, hex_of, iso, reward_reference
from tests.support.commands import Outcome, ltzd
from tests.support.rows.core import FEES, MINTER, a_hash, a_lane, a_wallet, an_attempt, an_intent

DEMO = Brand(id="0x00000000000000000000000000000000000000aa", name="Demo", domains=("a.example",))
EMAIL = "ada.lovelace@shop.example"
SOURCE = "bot\x1b[31m"


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database_url)
    yield pool
    pool.terminate()


async def an_event(db: Connection, ltz: int = 100) -> UUID:
    id_, user = uuid4(), uuid4()
    await db.execute(
        "INSERT INTO users (id, email_key, identity_subject, wallet) VALUES ($1, $2, 'x', $3)",
        user,
        EMAIL + str(user),
        a_wallet(7),
    )
    await db.execute(
        """
        INSERT INTO events (id, brand_id, event_type, email, user_id, domain, source,
                            user_identifier, ltz)
        VALUES ($1, $2, 'form_submit', $3, $4, 'shop.example', $5, 'ada', $6)
        """,
        id_,
        DEMO.address,
        EMAIL,
        user,
        SOURCE,
        ltz,
    )
    if ltz:
        await db.execute(
            "INSERT INTO rewards (id, kind, brand_id, wallet, ltz) VALUES ($1, 1, $2, $3, $4)",
            id_,
            DEMO.address,
            a_wallet(7),
            ltz,
        )
    return id_


async def a_failed_event(db: Connection, lane: Lane) -> UUID:
    id_ = await an_event(db)
    assert await rewards.fail(db, lane, {id_: "LTZ says: too much"}) == [id_]
    return id_


async def read_event(db: Connection, id_: UUID) -> EventHistory:
    history = await history_of(db, id_)
    assert history is not None
    return history


class Instance:
    def __init__(self, data_dir: Path) -> None:
        self._where = ("--data-dir", data_dir)

    async def event(self, *arguments: object) -> Outcome:
        return await ltzd("event", *arguments, *self._where)


@pytest.fixture
def instance(data_dir: Path) -> Instance:
    return Instance(data_dir)


@pytest_asyncio.fixture(autouse=True)
async def _demo(db: Connection, data_dir: Path) -> None:
    await brands.apply(db, DEMO, Sealer.from_file(data_dir / "master.key"))


async def test_a_published_reward_is_shown_with_its_transaction_and_every_attempt(
    instance: Instance, db: Connection, pool: Pool
) -> None:
    id_ = await an_event(db)
    lane = await a_lane(pool, first_nonce=7, first_seq=41)
    intent = an_intent(7, [id_], next_seq=41)
    async with session(pool) as connection:
        await transactions.store_signed(connection, lane, intent, an_attempt("first"))
        assert (await read_event(db, id_)).status == "queued"
        await transactions.mark_published(connection, [a_hash("first")])
    event = await read_event(db, id_)

    shown, as_json = await instance.event("show", id_), await instance.event("show", id_, "--json")

    assert event.transaction is not None
    (attempt,) = event.transaction.attempts
    assert attempt.published_at is not None
    assert as_json.json == {
        "eventId": str(id_),
        "brandId": DEMO.id,
        "brandName": "Demo",
        "brandIsPaused": False,
        "patienceSeconds": 0,
        "eventType": "form_submit",
        "source": SOURCE,
        "domain": "shop.example",
        "rewardAmount": 100,
        "status": "published",
        "walletAddress": checksummed(a_wallet(7)),
        "createdAt": iso(event.created_at),
        "reward": {
            "seq": 41,
            "reference": hex_of(reward_reference(id_, 1, 41)),
            "failedAt": None,
            "failure": None,
        },
        "transaction": {
            "id": event.transaction.id,
            "chainId": lane.chain_id,
            "wallet": checksummed(MINTER.address),
            "nonce": 7,
            "state": "published",
            "blockNumber": None,
            "createdAt": iso(event.transaction.created_at),
            "minedAt": None,
            "settledAt": None,
            "attempts": [
                {
                    "hash": hex_of(a_hash("first")),
                    "maxFeePerGasWei": FEES.max_fee_per_gas,
                    "maxPriorityFeePerGasWei": FEES.max_priority_fee_per_gas,
                    "createdAt": iso(attempt.created_at),
                    "publishedAt": iso(attempt.published_at),
                    "isSelfTransfer": False,
                }
            ],
        },
        "mint": None,
    }
    for expected in (
        str(id_),
        f"{DEMO.id} Demo",
        f"100 LTZ to {checksummed(a_wallet(7))}",
        f"{hex_of(reward_reference(id_, 1, 41))} (seq 41)",
        f"nonce 7 of {checksummed(MINTER.address)}",
        hex_of(a_hash("first")),
        "at most 3 gwei, 1 of it as a tip",
        "bot\\x1b[31m",
    ):
        assert expected in shown.out
    await db.execute("UPDATE attempts SET raw = $1", bytes.fromhex("f86b"))
    assert "gas price 3 gwei" in (await instance.event("show", id_)).out
    for text in (shown.out, shown.err, as_json.out, as_json.err):
        assert EMAIL not in text
        assert "\x1b" not in text


async def test_a_minted_reward_is_shown_with_its_block(instance: Instance, db: Connection) -> None:
    id_ = await an_event(db)
    await db.execute(
        """
        UPDATE rewards SET mint_block_number = 12, mint_block_hash = $2, mint_transaction_hash = $3
         WHERE id = $1
        """,
        id_,
        a_hash("block"),
        a_hash("mint"),
    )

    shown, as_json = await instance.event("show", id_), await instance.event("show", id_, "--json")

    assert as_json.json["status"] == "minted"
    assert as_json.json["mint"] == {
        "transactionHash": hex_of(a_hash("mint")),
        "blockNumber": 12,
        "blockHash": hex_of(a_hash("block")),
        "isFinal": False,
    }
    assert f"in block 12 {hex_of(a_hash('block'))}" in shown.out


async def test_an_event_that_waits_tells_why(instance: Instance, db: Connection) -> None:
    id_ = await an_event(db)
    assert (await instance.event("show", id_, "--json")).json["status"] == "queued"
    await brand_records.switch(db, DEMO.address, "paused", on=True)

    assert "the brand is paused, so its rewards wait" in (await instance.event("show", id_)).out
    assert (await instance.event("show", id_, "--json")).json["brandIsPaused"]


async def test_an_event_worth_nothing_owes_nothing(instance: Instance, db: Connection) -> None:
    as_json = await instance.event("show", await an_event(db, ltz=0), "--json")

    assert (as_json.json["status"], as_json.json["reward"]) == ("final", None)


async def test_a_failed_reward_goes_back_into_the_queue_once(
    instance: Instance, db: Connection, pool: Pool
) -> None:
    lane = await a_lane(pool)
    id_ = await a_failed_event(db, lane)
    failed = (await instance.event("show", id_, "--json")).json
    shown = await instance.event("show", id_)
    notified = []
    await db.add_listener(wakeups.REWARDS, lambda *_: notified.append(1))

    retried = await instance.event("retry", id_)
    again = await instance.event("retry", id_)

    assert failed["status"] == "failed"
    assert failed["reward"]["failure"] == "LTZ says: too much"
    assert "LTZ says: too much" in shown.out
    assert f"`ltzd event retry {id_}` puts it back" in shown.out
    assert (retried.code, retried.out) == (0, "")
    assert retried.err == f"The reward of event {id_} is in the queue again.\n"
    event = await read_event(db, id_)
    assert event.status == "queued"
    assert notified == [1]
    assert [reward.id for reward in await rewards.queued(db, 10)] == [id_]
    assert (again.code, again.out) == (1, "")
    assert again.err == (
        f"ltzd: Event {id_} is queued: only a failed reward can be retried. Nothing changed.\n"
    )
    assert "failed before" in (await instance.event("show", id_)).out


async def test_a_reference_outlasts_failing_and_retrying(
    instance: Instance, db: Connection, pool: Pool
) -> None:
    lane = await a_lane(pool)
    id_ = await an_event(db)
    await db.execute("UPDATE rewards SET seq = 5 WHERE id = $1", id_)
    await rewards.fail(db, lane, {id_: "no"})

    await instance.event("retry", id_)

    event = await read_event(db, id_)
    assert event.reward is not None
    assert event.reward.reference == reward_reference(id_, 1, 5)


@pytest.mark.parametrize("verb", ["show", "retry"])
async def test_what_is_no_event_is_a_sentence(instance: Instance, verb: str) -> None:
    unknown = UUID(int=0)
    sentences = {
        "12": "'12' is not an event id. An event id is the UUID in the answer to the event.",
        "\x1b[31m": "'\\x1b[31m' is not an event id. "
        "An event id is the UUID in the answer to the event.",
        str(unknown): f"There is no event {unknown}.",
    }
    for text, sentence in sentences.items():
        done = await instance.event(verb, text)
        assert (done.code, done.out, done.err) == (1, "", f"ltzd: {sentence}\n")
