"""`ltzd tx` beside a database: what it shows, asks, refuses and withdraws."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from ltzd.cli.targets import Target
from ltzd.cli.tx import requests as tx_requests
from ltzd.rules.operator.fees import GWEI, Fees
from ltzd.rules.operator.requests import Action, RequestOutcome
from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.store.database import Connection, Pool, open_pool, session, transaction
from ltzd.store.operator import requests, transactions, wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt
from ltzd.store.operator.wallets import WalletState
from ltzd.values import checksummed, hex_of
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.commands import Outcome, ltzd
from tests.support.relays.lanes import USER, a_plan, a_relay, a_relay_lane, send, write
from tests.support.rows.core import (
    MINTER,
    a_hash,
    a_lane,
    an_attempt,
    an_intent,
    queue_reward,
    running,
    save,
)
from tests.support.waiting import until

MINT = checksummed(MINTER.address)
QUICK = ("--wait", "0.3")


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database_url)
    yield pool
    pool.terminate()


class Transactions:
    """The commands, and a mint lane whose attempts a test stores as a lane does."""

    def __init__(self, data_dir: Path, pool: Pool, lane: Lane) -> None:
        self._data_dir = data_dir
        self.pool = pool
        self.lane = lane
        self.next_seq = 0

    async def __call__(self, *arguments: object) -> Outcome:
        return await ltzd("tx", *arguments, "--data-dir", self._data_dir)

    async def listed(self, *options: object) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self("list", "--json", *options)).json["transactions"]
        return rows

    async def sign(self, nonce: int, rewards: int = 0) -> int:
        async with transaction(self.pool) as connection:
            ids: Sequence[UUID] = [await queue_reward(connection) for _ in range(rewards)]
            intent = an_intent(nonce, ids, self.next_seq)
            self.next_seq += rewards
            attempt = an_attempt(f"first {nonce}")
            return await transactions.store_signed(connection, self.lane, intent, attempt)

    async def grow_old(self, tx: int, seconds: int = 3600) -> None:
        async with session(self.pool) as connection:
            await connection.execute(
                "UPDATE transactions SET created_at = now() - make_interval(secs => $2) "
                "WHERE id = $1",
                tx,
                seconds,
            )

    @asynccontextmanager
    async def carrying_out(self, is_cancellation: bool = False) -> AsyncIterator[None]:
        """Carries each request out as the lane does, with an attempt of 3.3 gwei."""
        async with running(self._carry_out(is_cancellation=is_cancellation)):
            yield

    async def _carry_out(self, *, is_cancellation: bool) -> None:
        while True:
            async with session(self.pool) as connection:
                open_ = await requests.open_requests(connection, self.lane, 10)
            for request in open_:
                fees = Fees(33 * GWEI // 10, 11 * GWEI // 10)
                attempt = Attempt(a_hash(f"r{request.id}"), b"\x02", fees, is_cancellation)
                async with transaction(self.pool) as connection:
                    await transactions.store_attempt(
                        connection, self.lane, request.transaction_id, attempt
                    )
                    assert await requests.carry_out(connection, request.id, attempt.hash)
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def refusing(self, outcome: RequestOutcome) -> AsyncIterator[None]:
        async with running(self._refuse(outcome)):
            yield

    async def _refuse(self, outcome: RequestOutcome) -> None:
        while True:
            async with session(self.pool) as connection:
                open_ = await requests.open_requests(connection, self.lane, 10)
                await requests.refuse(connection, self.lane, [(each.id, outcome) for each in open_])
            await asyncio.sleep(0.02)

    async def attempts(self) -> int:
        async with session(self.pool) as connection:
            count: int = await connection.fetchval("SELECT count(*) FROM attempts")
        return count


@pytest_asyncio.fixture
async def tx(data_dir: Path, pool: Pool) -> Transactions:
    return Transactions(data_dir, pool, await a_lane(pool))


# --- list and show ----------------------------------------------------------------------------


async def test_open_transactions_are_listed_oldest_first_with_what_they_do(
    tx: Transactions, pool: Pool
) -> None:
    first, second = await tx.sign(0, rewards=3), await tx.sign(1, rewards=1)
    relay_lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay(a_plan(user=USER)))
    (sent,) = await send(pool, relay_lane)
    await tx.grow_old(first)

    listed = await tx.listed()

    assert [row["id"] for row in listed] == [first, second, sent.id]
    assert [row["does"] for row in listed] == [
        "mint of 3 rewards, 300 LTZ",
        "mint of 1 reward, 100 LTZ",
        f"PerkNFT.permitLTZ for {checksummed(USER)}",
    ]
    assert [row["relay"] for row in listed] == [None, None, relay]
    assert [row["isStuck"] for row in listed] == [True, False, False]
    assert [(row["behind"], row["oldestTransaction"]) for row in listed[:2]] == [
        (0, None),
        (1, first),
    ]
    assert [row["id"] for row in await tx.listed("--stuck")] == [first]
    assert [row["id"] for row in await tx.listed("--wallet", MINT)] == [first, second]
    assert [row["id"] for row in await tx.listed("--limit", 1)] == [first]
    assert await tx.listed("--state", "published") == []
    shown = (await tx("list")).out
    assert "stuck" in shown
    assert "behind nonce 0" in shown


async def test_mined_transactions_do_not_hide_an_unmined_one(tx: Transactions) -> None:
    mined = [await tx.sign(nonce) for nonce in range(3)]
    stuck = await tx.sign(3)
    here = Inclusion(7, a_hash("block"), succeeded=True)
    async with transaction(tx.pool) as connection:
        for id_ in mined:
            await save(connection, tx.lane, id_, State.SIGNED, Transaction(State.MINED, here))

    listed = await tx.listed("--limit", 2)

    assert [row["id"] for row in listed] == [stuck, mined[-1]]


async def test_settled_transactions_are_listed_newest_first(tx: Transactions) -> None:
    ids = [await tx.sign(nonce) for nonce in range(3)]
    here = Inclusion(7, a_hash("block"), succeeded=True)
    for id_ in ids[:2]:
        async with session(tx.pool) as connection:
            mined = Transaction(State.MINED, here)
            await save(connection, tx.lane, id_, State.SIGNED, mined)
            final = Transaction(State.CONFIRMED, here)
            await save(connection, tx.lane, id_, State.MINED, final)

    assert [row["id"] for row in await tx.listed("--state", "all")] == [ids[2], ids[1], ids[0]]
    assert [row["id"] for row in await tx.listed("--state", "confirmed")] == [ids[1], ids[0]]
    assert [row["id"] for row in await tx.listed()] == [ids[2]]


async def test_nothing_to_list_is_said(tx: Transactions) -> None:
    assert (await tx("list")).err == "No transaction matches.\n"


async def test_a_transaction_is_shown_by_id_and_by_the_hash_of_any_attempt(
    tx: Transactions,
) -> None:
    id_ = await tx.sign(0, rewards=2)
    async with session(tx.pool) as connection:
        await transactions.mark_published(connection, [a_hash("first 0")])
    async with tx.carrying_out():
        assert (await tx("speed-up", id_)).code == 0

    shown = (await tx("show", id_, "--json")).json
    by_hash = (await tx("show", hex_of(a_hash("first 0")), "--json")).json
    page = (await tx("show", id_)).out

    assert shown["id"] == by_hash["id"] == id_
    assert [attempt["isSelfTransfer"] for attempt in shown["attempts"]] == [False, False]
    assert shown["attempts"][1]["maxFeePerGasWei"] == 33 * GWEI // 10
    assert [reward["rewardAmount"] for reward in shown["waiting"]] == [100, 100]
    (request,) = shown["requests"]
    assert (request["action"], request["outcome"]) == ("speed_up", "done")
    assert request["attempt"] == shown["attempts"][1]["hash"] == shown["newestHash"]
    times = [event["at"] for event in shown["events"]]
    assert times == sorted(times)
    texts = [event["what"] for event in shown["events"]]
    assert texts[0] == "signed: at most 3 gwei, 1 of it as a tip"
    assert f"a node took {hex_of(a_hash('first 0'))}" in texts
    assert "a person asked: speed-up" in texts
    for text in ("mint of 2 rewards, 200 LTZ", "speed-up done by", "waits"):
        assert text in page


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("7", "There is no transaction 7"),
        ("-1", "names no transaction"),
        ("0x12", "names no transaction"),
        ("x", "names no transaction"),
        (str(2**63), "names no transaction"),
        ("0x" + "11" * 32, "No transaction of this ltzd has an attempt with the hash"),
    ],
)
async def test_an_argument_that_names_no_transaction_is_refused(
    tx: Transactions, text: str, sentence: str
) -> None:
    for command in ("show", "speed-up", "cancel"):
        refused = await tx(command, "--", text) if text == "-1" else await tx(command, text)
        assert refused.code != 0
        assert sentence in refused.err or text == "-1"


# --- speed-up and cancel ----------------------------------------------------------------------


async def test_a_speed_up_says_what_it_did_and_what_may_still_happen(tx: Transactions) -> None:
    id_ = await tx.sign(0, rewards=2)
    async with tx.carrying_out():
        done = await tx("speed-up", id_, "--json")

    assert done.json["isDone"]
    assert done.json["request"]["attempt"] == done.json["transaction"]["newestHash"]
    assert f"Transaction {id_} (nonce 0 of {MINT}) is sped up" in done.err
    assert "at most 3.3 gwei, 1.1 of it as a tip" in done.err
    assert "any of its 2 attempts may be mined, and one at most" in done.err


async def test_a_speed_up_that_is_repeated_at_once_is_not_done_twice(tx: Transactions) -> None:
    id_ = await tx.sign(0)
    async with tx.carrying_out():
        first, second = await tx("speed-up", id_, "--json"), await tx("speed-up", id_, "--json")
    assert (first.json["isNew"], second.json["isNew"]) == (True, False)
    assert first.json["request"]["id"] == second.json["request"]["id"]
    assert "the same request was carried out before, at" in second.err
    assert await tx.attempts() == 2


async def test_a_cancellation_says_what_becomes_of_the_rewards_and_what_holds_them_back(
    tx: Transactions,
) -> None:
    id_ = await tx.sign(0, rewards=2)
    async with tx.carrying_out(is_cancellation=True):
        done = await tx("cancel", id_)

    assert done.code == 0
    assert "is being cancelled: a self-transfer with its nonce pays at most 3.3 gwei" in done.err
    assert "may mine these instead; then the work is done as usual" in done.err
    assert "the queue gets 2 rewards back under the same references" in done.err
    assert "ltzd lane pause --kind mint" in done.err
    assert "ltzd brand pause" in done.err
    (row,) = await tx.listed()
    assert row["hasSelfTransfer"]
    assert "being cancelled" in (await tx("list")).out


async def test_a_later_nonce_is_not_sped_up_before_the_oldest(tx: Transactions) -> None:
    oldest, later = await tx.sign(0), await tx.sign(1)

    refused = await tx("speed-up", later, *QUICK)

    assert refused.code == 1
    assert f"Speed up the oldest first: ltzd tx speed-up {oldest} (nonce 0)" in refused.err
    async with tx.carrying_out():
        done = await tx("speed-up", later, "--anyway")
    assert done.code == 0
    assert f"the oldest is transaction {oldest} (nonce 0)" in done.err


async def test_a_cancellation_of_a_later_nonce_names_the_nonces_before_it(
    tx: Transactions,
) -> None:
    oldest, later = await tx.sign(0), await tx.sign(1)
    async with tx.carrying_out(is_cancellation=True):
        done = await tx("cancel", later)
    assert done.code == 0
    assert f"the oldest is transaction {oldest} (nonce 0)" in done.err


@pytest.mark.parametrize("command", ["speed-up", "cancel"])
async def test_without_a_lane_the_request_is_withdrawn(tx: Transactions, command: str) -> None:
    id_ = await tx.sign(0)

    refused = await tx(command, id_, *QUICK, "--json")

    assert refused.code == 1
    assert "no process serves the lane of its wallet now" in refused.err
    assert "no lane will do it later" in refused.err
    assert '"outcome": "withdrawn"' in refused.out
    async with session(tx.pool) as connection:
        _, has_requests = await wallets.find_with_requests(
            connection, tx.lane.chain_id, tx.lane.wallet
        )
        assert not has_requests


async def test_a_command_that_is_interrupted_withdraws_its_request(
    tx: Transactions, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C cancels the command's task."""
    request = tx_requests.Request(Action.CANCEL, str(await tx.sign(0)), wait_seconds=60)
    target = Target(database_url, Path("master.key"))

    async def outcomes() -> list[str | None]:
        async with session(tx.pool) as connection:
            rows = await connection.fetch("SELECT outcome FROM transaction_requests")
        return [row["outcome"] for row in rows]

    async def is_asked() -> bool:
        return await outcomes() == [None]

    command = asyncio.create_task(tx_requests._ask(target, request))
    await until(is_asked)
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command

    assert await outcomes() == ["withdrawn"]
    assert "See what became of the request: `ltzd tx show" in capsys.readouterr().err


async def test_a_request_that_is_left_stays_until_it_is_given_without_that(
    tx: Transactions,
) -> None:
    id_ = await tx.sign(0)

    left = await tx("cancel", id_, *QUICK, "--leave")

    assert left.code == 1
    assert "The request stays" in left.err
    (row,) = await tx.listed()
    assert row["hasOpenRequest"]
    await tx("cancel", id_, *QUICK)
    (row,) = await tx.listed()
    assert not row["hasOpenRequest"]


@pytest.mark.parametrize(
    "outcome",
    [
        outcome
        for outcome in RequestOutcome
        if outcome.value not in {"done", "expired", "withdrawn"}
    ],
)
async def test_each_reason_of_a_lane_is_told(tx: Transactions, outcome: RequestOutcome) -> None:
    id_ = await tx.sign(0)
    async with tx.refusing(outcome):
        refused = await tx("speed-up", id_, "--json")
    assert refused.code == 1
    assert f'"outcome": "{outcome.value}"' in refused.out
    assert f"Transaction {id_} (nonce 0 of {MINT}) is unchanged: " in refused.err


@pytest.mark.parametrize("command", ["speed-up", "cancel"])
async def test_a_mined_transaction_is_refused_before_anything_is_written(
    tx: Transactions, command: str
) -> None:
    id_ = await tx.sign(0)
    async with session(tx.pool) as connection:
        here = Inclusion(7, a_hash("block"), succeeded=True)
        await save(connection, tx.lane, id_, State.SIGNED, Transaction(State.MINED, here))

    refused = await tx(command, id_)

    assert refused.code == 1
    assert "is too late to replace: it is in block 7, and not final yet" in refused.err
    async with session(tx.pool) as connection:
        assert await requests.of_transaction(connection, id_) == []


async def test_a_retired_wallets_transaction_is_refused(tx: Transactions) -> None:
    id_ = await tx.sign(0)
    async with session(tx.pool) as connection:
        await wallets.add(connection, CHAIN_ID, MINTER.address, "mint")
        await wallets.set_state(connection, CHAIN_ID, MINTER.address, WalletState.RETIRED)

    refused = await tx("cancel", id_)

    assert refused.code == 1
    assert "its wallet is retired" in refused.err


async def test_a_command_does_not_wait_for_a_frozen_process_that_holds_the_request(
    tx: Transactions, db: Connection
) -> None:
    """A process that is stopped in the middle of its commit keeps the row's lock."""
    id_ = await tx.sign(0)
    command = asyncio.create_task(tx("cancel", id_, "--wait", "1"))

    async def is_written() -> bool:
        _, has_requests = await wallets.find_with_requests(db, tx.lane.chain_id, tx.lane.wallet)
        return has_requests

    await until(is_written)
    frozen = db.transaction()
    await frozen.start()
    await db.execute("SELECT FROM transaction_requests FOR UPDATE")
    refused = await command
    again = await tx("cancel", id_, "--wait", "0")
    await frozen.rollback()

    assert (refused.code, again.code) == (1, 1)
    assert "A process is carrying out a request for" in again.err
    assert "a process holds the request at this moment" in refused.err
    async with session(tx.pool) as connection:
        (left,) = await requests.of_transaction(connection, id_)
    assert (left.action, left.outcome) == (Action.CANCEL, None)
    assert left.expires_at is not None
