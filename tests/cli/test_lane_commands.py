"""`ltzd lane list`, `pause` and `resume` beside a database; no process serves the lanes here."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from ltzd.chain.node.answers.typed import Account
from ltzd.cli.lane import switches, views
from ltzd.cli.targets import Target
from ltzd.store.database import Connection, Pool, open_pool, session
from ltzd.store.operator import lane_views, lanes, transactions, wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import lane_lease
from ltzd.store.operator.wallets import WalletState
from ltzd.values import Address, checksummed
from tests.support.chain.fake_node import CHAIN_ID, ETHER, FakeNode
from tests.support.commands import Outcome, ltzd
from tests.support.relays.lanes import RELAYER, a_relay_lane
from tests.support.rows.core import MINTER, a_lane, an_attempt, an_intent, follow
from tests.support.surfaces.event_surface import a_served_node

MINT, RELAY = checksummed(MINTER.address), checksummed(RELAYER.address)


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database_url)
    yield pool
    pool.terminate()


class Lanes:
    def __init__(self, data_dir: Path, db: Connection) -> None:
        self._data_dir = data_dir
        self._db = db

    async def __call__(self, *arguments: object) -> Outcome:
        return await ltzd("lane", *arguments, "--data-dir", self._data_dir)

    async def listed(self) -> dict[str, dict[str, Any]]:
        rows = (await self("list", "--json")).json["lanes"]
        return {row["wallet"]: row for row in rows}

    async def hold(self, lane: Lane, seconds: int = 60) -> None:
        """Writes the lease of a process that serves the lane."""
        await self._db.execute(
            """
            INSERT INTO leases (name, holder, process, pid, backend_start, taken_at, renewed_at,
                                expires_at)
            VALUES ($1, $2, 'host:7', 7, now(), now(), now(), now() + make_interval(secs => $3))
                ON CONFLICT (name) DO UPDATE
               SET process = excluded.process, expires_at = excluded.expires_at
            """,
            lane_lease(lane.chain_id, lane.wallet),
            uuid4(),
            seconds,
        )


@pytest.fixture
def lane_commands(data_dir: Path, db: Connection) -> Lanes:
    return Lanes(data_dir, db)


async def test_a_list_tells_holder_nonces_age_and_reason(
    lane_commands: Lanes, pool: Pool, db: Connection
) -> None:
    mint, relay = await a_lane(pool, first_nonce=7), await a_relay_lane(pool)
    async with session(pool) as connection:
        tx = await transactions.store_signed(connection, mint, an_intent(7), an_attempt("a"))
        await lanes.report_working(connection, mint, "funds")
    await lane_commands.hold(mint)
    await lane_commands.hold(relay, seconds=-1)

    listed = await lane_commands.listed()

    row = listed[MINT]
    assert row.pop("oldestSeconds") >= 0
    assert row.pop("pausedSince") is not None
    assert row == {
        "chainId": CHAIN_ID,
        "wallet": MINT,
        "kind": "mint",
        "state": "active",
        "holder": "host:7",
        "epoch": 1,
        "nextNonce": 8,
        "nonceOnChain": None,
        "balanceWei": None,
        "inFlight": 1,
        "mined": 0,
        "oldestTransaction": tx,
        "pausedFor": "funds",
        "pausedByHandSince": None,
        "pausedByHandReason": None,
    }
    assert (listed[RELAY]["holder"], listed[RELAY]["inFlight"]) == (None, 0)
    shown = await lane_commands("list")
    assert shown.code == 0
    assert MINT in shown.out
    assert "funds since" in shown.out
    assert f"The relay lane of {RELAY} is served by no process: none runs" in shown.err
    only = await lane_commands("list", "--kind", "relay", "--json")
    assert [row["wallet"] for row in only.json["lanes"]] == [RELAY]


async def test_a_wallet_that_was_never_served_is_listed_without_a_nonce(
    lane_commands: Lanes, db: Connection
) -> None:
    await wallets.add(db, CHAIN_ID, MINTER.address, "mint")

    row = (await lane_commands.listed())[MINT]

    assert (row["nextNonce"], row["epoch"], row["state"]) == (None, None, "active")


async def test_without_lanes_there_is_nothing_to_list_or_pause(lane_commands: Lanes) -> None:
    assert (await lane_commands("list")).err == (
        "There is no lane yet: a process with the role operator makes one for each wallet.\n"
    )
    refused = await lane_commands("pause", "--all", "--reason", "x")
    assert refused.code == 1
    assert refused.err == "ltzd: There is no lane. Known are: none. Nothing changed.\n"


async def test_a_pause_that_another_command_undoes_is_not_told_as_a_pause(
    lane_commands: Lanes, pool: Pool, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_lane(pool)

    async def resume(connection: Connection, *_: object, **__: object) -> dict[Address, bool]:
        await wallets.set_paused(connection, CHAIN_ID, MINTER.address, None)
        return {MINTER.address: False}

    monkeypatch.setattr(switches, "_wait_until_in_force", resume)
    done = await lane_commands("pause", MINT, "--reason", "fees at 90")

    assert done.err == (
        f"The mint lane of {MINT} was resumed by another command meanwhile: see `ltzd lane list`.\n"
    )


async def test_a_pause_keeps_its_time_and_takes_a_new_reason(
    lane_commands: Lanes, pool: Pool
) -> None:
    await a_lane(pool)
    first = (await lane_commands("pause", MINT, "--reason", "fees at 90", "--json")).json["lanes"]
    again = await lane_commands("pause", MINT.lower(), "--reason", "wait for Ada")

    assert first[0]["pausedByHandReason"] == "fees at 90"
    assert (first[0]["changed"], first[0]["inForce"]) == (True, None)
    assert again.code == 0
    assert f"{MINT} is still paused by hand, since {first[0]['pausedByHandSince']}" in again.err
    assert "No process serves the lane now" in again.err
    row = (await lane_commands.listed())[MINT]
    assert row["pausedByHandReason"] == "wait for Ada"
    assert row["pausedByHandSince"] == first[0]["pausedByHandSince"]
    assert "by_hand since" in (await lane_commands("list")).out


async def test_a_resume_ends_the_pause_and_can_be_repeated(
    lane_commands: Lanes, pool: Pool
) -> None:
    await a_lane(pool)
    await lane_commands("pause", "--all", "--reason", "x")
    ended = (await lane_commands("resume", "--all", "--json")).json["lanes"]
    again = await lane_commands("resume", MINT)

    assert [(lane["changed"], lane["pausedByHandSince"]) for lane in ended] == [(True, None)]
    assert again.code == 0
    assert "is not paused by hand: nothing changes" in again.err
    assert (await lane_commands.listed())[MINT]["pausedByHandReason"] is None


async def test_a_pause_of_one_kind_leaves_the_others(lane_commands: Lanes, pool: Pool) -> None:
    await a_lane(pool)
    await a_relay_lane(pool)
    await lane_commands("pause", "--kind", "mint", "--reason", "x")

    listed = await lane_commands.listed()

    assert listed[MINT]["pausedByHandSince"] is not None
    assert listed[RELAY]["pausedByHandSince"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--reason", "x"], "Name the lanes: their wallets, --kind, or --all."),
        (["--all"], "Give --reason"),
        (["--all", "--reason", "  "], "Give --reason"),
        (["--all", "--reason", "x" * 501], "Give --reason in up to 500 characters"),
        (["0xabc", "--reason", "x"], "'0xabc' is not a wallet's address"),
        (["0x" + "00" * 20, "--reason", "x"], "has no lane. Known are: "),
        ([MINT, "--kind", "relay", "--reason", "x"], f"{MINT} has no lane"),
        ([MINT, "--all", "--reason", "x"], "--all: give it alone, or name wallets or --kind"),
        (["--all", "--kind", "mint", "--reason", "x"], "--all: give it alone"),
    ],
)
async def test_a_pause_that_names_no_lane_or_no_reason_changes_nothing(
    lane_commands: Lanes, pool: Pool, arguments: list[str], sentence: str
) -> None:
    await a_lane(pool)

    refused = await lane_commands("pause", *arguments)

    assert refused.code == 1
    assert sentence in refused.err
    assert (await lane_commands.listed())[MINT]["pausedByHandSince"] is None


async def test_a_holder_that_does_not_follow_in_time_is_named(
    lane_commands: Lanes, pool: Pool
) -> None:
    """As a frozen process, whose lease has not ended yet."""
    await lane_commands.hold(await a_lane(pool))

    paused = await lane_commands("pause", "--all", "--reason", "x", "--json")

    assert [lane["inForce"] for lane in paused.json["lanes"]] == [False]
    assert "host:7 has not said yet that it follows" in paused.err


async def test_a_retired_wallets_pause_says_that_it_signs_nothing_anyway(
    lane_commands: Lanes, pool: Pool, db: Connection
) -> None:
    await a_lane(pool)
    await wallets.add(db, CHAIN_ID, MINTER.address, "mint")
    await wallets.set_state(db, CHAIN_ID, MINTER.address, WalletState.RETIRED)

    paused = await lane_commands("pause", MINT, "--reason", "x")

    assert "Its wallet is retired, so it signs no new work either way." in paused.err
    assert "No process serves" not in paused.err


async def test_the_nonces_of_a_retired_wallet_are_no_reason_to_look(
    pool: Pool, db: Connection
) -> None:
    await a_lane(pool, first_nonce=7)
    on_chain = {MINTER.address: Account(balance=0, nonce=9)}
    (*_, remark) = views._remarks(await lane_views.list_lanes(db), on_chain)
    assert "has used 9 nonces on chain, the database knows 7" in remark

    await wallets.add(db, CHAIN_ID, MINTER.address, "mint")
    await wallets.set_state(db, CHAIN_ID, MINTER.address, WalletState.RETIRED)
    assert list(views._remarks(await lane_views.list_lanes(db), on_chain)) == []


async def test_one_node_that_lies_has_no_wallet_look_shared(
    pool: Pool, data_dir: Path, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    liar, honest = FakeNode(), FakeNode()
    await follow(pool, honest)
    await a_lane(pool, first_nonce=7)
    liar.false_nonce, liar.balance = 99, 2_000 * ETHER
    target = Target(database_url, data_dir / "master.key")

    async with a_served_node(liar) as first, a_served_node(honest) as second:
        urls = (first, "http://127.0.0.1:1", second)
        await asyncio.to_thread(views.list_lanes, target, None, urls, as_json=False)

    out, err = capsys.readouterr()
    assert "1000.0000" in out
    assert "2000.0000" not in out
    assert "Not asked: 127.0.0.1:1" in err
    assert re.search(r"do not agree about the mint wallet .*: 99 nonces, 2000.* one of them", err)
    assert "another program signs" not in err


async def test_a_reason_shows_no_control_characters(lane_commands: Lanes, pool: Pool) -> None:
    await a_lane(pool)
    await lane_commands("pause", MINT, "--reason", "a\x1b[31mred[/] thing")

    assert "a\\x1b[31mred[/] thing" in (await lane_commands("list")).out
