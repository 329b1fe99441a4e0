"""`ltzd books`: a report that exits with 1 if the books disagree, and statements as CSV."""

import asyncio
import csv
import io
import json
import os
import re
import stat
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from ltzd.chain.contracts.abi_words import selector
from ltzd.chain.contracts.artifacts import CONTRACTS
from ltzd.chain.node.answers.typed import Header
from ltzd.cli import chain_targets
from ltzd.cli.books import report as books_report
from ltzd.indexer.contracts import indexed_contracts
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Connection, open_pool
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer.chains import BlockRow, ChainIdentity
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import (
    LTZ,
    ZERO_ADDRESS,
    Address,
    checksummed,
    hex_of,
    iso,
    reward_reference,
)
from tests.support.chain.contracts import Contracts as Deployed
from tests.support.chain.contracts import deployed_contracts
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.lies import Lie
from tests.support.chain.faulty_node.node import a_faulty_node
from tests.support.chain.scripted_node import a_server, always
from tests.support.commands import Outcome, begin_ltzd, ltzd
from tests.support.instances.books import all_minted
from tests.support.instances.instance import Instance
from tests.support.rows.books import ONE, TWO, BookRows
from tests.support.rows.core import a_wallet
from tests.support.waiting import until

MARCH = datetime(2026, 3, 1, tzinfo=UTC)
NO_NODE = "The chain was not compared: "


class BooksCli:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    async def books(self, *options: object) -> Outcome:
        return await ltzd("books", *options, "--data-dir", self.data_dir)

    async def acknowledge(self, *arguments: object) -> Outcome:
        return await ltzd("books", "acknowledge", *arguments, "--data-dir", self.data_dir)

    async def read_report(self, *options: object) -> Any:
        done = await self.books("--json", *options)
        report = json.loads(done.out)
        assert done.code == (0 if report["agree"] else 1)
        return report

    async def statement(self, *options: object) -> list[dict[str, str]]:
        done = await self.books("--brand", "One", "--statement", "-", *options)
        assert done.code == 0, done.err
        return list(csv.DictReader(io.StringIO(done.out, newline="")))


@pytest.fixture
def cli(data_dir: Path) -> BooksCli:
    return BooksCli(data_dir)


@pytest_asyncio.fixture
async def rows(db: Connection, data_dir: Path) -> BookRows:
    rows = BookRows(db)
    await rows.begin(Sealer.from_file(data_dir / "master.key"))
    return rows


def kinds(report: Any) -> dict[str, int]:
    return {each["kind"]: each["count"] for each in report["disagreements"]}


async def test_books_that_agree_have_a_row_for_each_brand_and_a_total(
    cli: BooksCli, rows: BookRows
) -> None:
    event, paid, nobodys = (
        await rows.event(ltz=1_100),
        await rows.payment(cents=1_250),
        await rows.payment(ZERO_ADDRESS, cents=99),
    )
    await rows.minted(event, paid, nobodys)
    await rows.deliver(event)
    await rows.event()

    report, shown = await cli.read_report(), await cli.books()

    assert report["agree"]
    assert [(brand["brandId"], brand["name"]) for brand in report["brands"]] == [
        (ONE.id, "One"),
        (TWO.id, "Two"),
        (None, None),
    ]
    first, second, without_brand = report["brands"]
    assert {key: first[key] for key in first.keys() - {"brandId", "name"}} == {
        "answered": {"count": 2, "ltz": 1_200},
        "bought": {"count": 1, "usd": 12.50, "ltz": 12_500},
        "other": {"count": 0, "ltz": 0},
        "minted": {"count": 2, "ltz": 13_600},
        "waiting": {"queued": 1, "inFlight": 0, "failed": 0},
        "announced": {"delivered": 1, "pending": 0, "exhausted": 0},
        "onChain": {"count": 2, "ltz": 13_600},
    }
    assert second["answered"] == {"count": 0, "ltz": 0}
    assert without_brand["bought"] == {"count": 1, "usd": 0.99, "ltz": 990}
    assert report["totals"]["onChain"] == {"count": 3, "ltz": 14_590}
    assert report["chain"]["balancesLtz"] == 14_590
    assert shown.code == 0
    for text in ("One", ONE.id, "1,200 LTZ", "12.50 USD", "no brand", "total", "14,590 LTZ"):
        assert text in shown.out
    assert "The books agree as far as they were compared." in shown.out
    assert NO_NODE in shown.err


async def test_what_disagrees_is_named_and_ends_with_1(
    cli: BooksCli, rows: BookRows, db: Connection
) -> None:
    id_ = await rows.event(ltz=100)
    await rows.minted(id_)
    lost = [await rows.event() for _ in range(21)]
    await db.execute("DELETE FROM rewards WHERE id = ANY($1::uuid[])", lost)
    await db.execute("UPDATE mints SET amount = amount + 1")

    shown, report = await cli.books(), await cli.read_report()

    assert shown.code == 1
    assert "event_without_reward (21): events worth LTZ that have no reward" in shown.out
    assert f"  {lost[19]}  event: ltz 100, brandId {ONE.id}; reward: none" in shown.out
    assert str(lost[20]) not in shown.out
    assert "  and 1 more" in shown.out
    assert f"  {id_}  mint: ltz 100.000000000000000001, wallet 0x" in shown.out
    assert "The books agree." not in shown.out
    assert kinds(report) == {
        "event_without_reward": 21,
        "minted_without_mint": 1,
        "mint_and_reward_differ": 1,
        "mints_and_transfers_differ": 1,
    }
    assert report["disagreements"][0]["rows"][0] == {
        "id": str(lost[0]),
        "event": {"ltz": 100, "brandId": ONE.id},
        "reward": None,
    }
    await db.execute("UPDATE mints SET amount = 1")
    dust = await cli.books()
    assert "mint: ltz 0.000000000000000001, wallet" in dust.out
    assert "0.000000000000000001 LTZ" in dust.out
    await db.execute("UPDATE mints SET amount = 100000000000000000001")
    raw = (await cli.books("--json")).out
    assert '"ltz": 100.000000000000000001' in raw


async def test_one_brands_books_leave_out_the_others(
    cli: BooksCli, rows: BookRows, db: Connection
) -> None:
    ours, theirs = await rows.event(ONE), await rows.event(TWO)
    await rows.minted(ours, theirs)
    await db.execute("DELETE FROM events WHERE id = $1", theirs)

    first, second = (
        await cli.read_report("--brand", "One"),
        await cli.read_report("--brand", TWO.id),
    )
    unknown = await cli.books("--brand", "Nobody")

    assert (first["agree"], first["chain"], first["notes"]) == (True, None, [])
    assert [brand["name"] for brand in first["brands"]] == ["One"]
    assert kinds(second) == {"reward_without_event": 1}
    assert (unknown.code, unknown.out) == (1, "")
    assert "No brand has the id or the name 'Nobody'" in unknown.err


async def test_a_reports_figures_are_a_periods_and_its_disagreements_of_all_time(
    cli: BooksCli, rows: BookRows, db: Connection
) -> None:
    old, new = await rows.event(ltz=3), await rows.event(ltz=4)
    await rows.recorded(old, MARCH - timedelta(milliseconds=1))
    await rows.recorded(new, MARCH)
    await db.execute("DELETE FROM rewards WHERE id = $1", old)

    report = await cli.read_report("--from", "2026-03-01", "--to", "2026-03-02")

    assert report["totals"]["answered"] == {"count": 1, "ltz": 4}
    assert kinds(report) == {"event_without_reward": 1}
    assert (report["from"], report["to"]) == (
        "2026-03-01T00:00:00.000Z",
        "2026-03-02T00:00:00.000Z",
    )


async def test_a_new_database_agrees_and_one_without_tables_is_a_sentence(
    cli: BooksCli, db: Connection
) -> None:
    report = await cli.read_report()
    assert (report["agree"], report["brands"], report["chain"]) == (True, [], None)

    await db.execute("DROP TABLE webhooks")
    done = await cli.books()
    assert (done.code, done.out) == (1, "")
    assert "run: ltzd migrate" in done.err


# --- beside the chain ---------------------------------------------------------------------------


class OnChain:
    """Books whose rewards are minted by a real LTZ contract and read by the indexer."""

    def __init__(self, rows: BookRows, deployed: Deployed, reader: Follower) -> None:
        self.rows = rows
        self.deployed = deployed
        self._reader = reader
        self._seq = 0

    async def mint(self) -> None:
        id_ = await self.rows.event()
        reward = await self.rows.db.fetchrow(
            "UPDATE rewards SET seq = $2 WHERE id = $1 RETURNING wallet", id_, self._seq
        )
        await self._mint(Address(reward["wallet"]), reward_reference(id_, 1, self._seq))

    async def mint_unasked(self) -> None:
        """Mint with the minter's key, but outside ltzd."""
        await self._mint(a_wallet(66), reward_reference(uuid4(), 1, self._seq))

    async def _mint(self, wallet: Address, reference: bytes) -> None:
        call = ("LTZ", "mintReward", wallet, 100 * LTZ, reference)
        await self.deployed.send(self.deployed.minter, *call)
        self._seq += 1
        await self.rows.db.execute("UPDATE reference_counters SET next_seq = $1", self._seq)

    async def read(self) -> None:
        while await self._reader.step():
            pass


@pytest_asyncio.fixture
async def on_chain(db: Connection, database_url: str, data_dir: Path) -> AsyncIterator[OnChain]:
    async with deployed_contracts("anvil") as deployed:
        genesis = await deployed.node.block(0)
        assert isinstance(genesis, Header)
        at = deployed.at
        chain = ChainIdentity(deployed.chain_id, genesis.hash, at["LTZ"], 1)
        rows = BookRows(db)
        await rows.begin(
            Sealer.from_file(data_dir / "master.key"),
            chain,
            BlockRow(0, genesis.hash, genesis.parent_hash, genesis.timestamp),
        )
        add_node(data_dir, deployed.rpc.url, at)
        names = ("ltz", "perk_nft", "points_sale", "business_escrow")
        contracts = indexed_contracts(
            {name: at[contract] for name, contract in zip(names, CONTRACTS, strict=True)}
        )
        policy = IndexerPolicy(follows_deep_reorgs=True)
        pool = await open_pool(database_url)
        node = deployed.node
        reader = Follower(pool, Leases(database_url), node, chain, contracts, WakeupHub(""), policy)
        await reader.begin_term()
        yield OnChain(rows, deployed, reader)
        pool.terminate()


def add_node(data_dir: Path, rpc_url: str, at: dict[str, Address]) -> None:
    dev_json = json.loads((data_dir / "dev.json").read_text())
    contracts = {name: hex_of(address) for name, address in at.items()}
    node = {"rpcUrl": rpc_url, "chainId": CHAIN_ID, "contracts": contracts}
    (data_dir / "dev.json").write_text(json.dumps(dev_json | node))


async def test_ltz_itself_agrees_with_the_index_or_is_said_to_differ(
    cli: BooksCli, on_chain: OnChain, db: Connection
) -> None:
    report = await cli.read_report()
    assert (report["agree"], report["notes"]) == (
        True,
        [NO_NODE + "the indexer has not read any block of LTZ yet."],
    )

    await on_chain.mint()
    await on_chain.mint()
    await on_chain.read()
    await on_chain.mint()  # above the indexed block
    report, shown = await cli.read_report(), await cli.books()
    assert (report["agree"], report["notes"]) == (True, [])
    assert (report["totals"]["onChain"]["count"], report["chain"]["supplyLtz"]) == (2, 200)
    assert "LTZ's total supply at that block is 200 LTZ." in shown.out
    assert shown.err == ""

    await on_chain.read()
    id_ = await db.fetchval("SELECT id::text FROM rewards WHERE seq = 2")
    await on_chain.mint_unasked()
    await on_chain.read()
    report = await cli.read_report()
    assert kinds(report) == {"foreign_mint": 1}
    assert report["disagreements"][0]["rows"][0]["mint"]["wallet"] == hex_of(a_wallet(66))

    unread = "block_number = (SELECT mint_block_number FROM rewards WHERE seq = 2)"
    await db.execute(
        "DELETE FROM balances WHERE wallet = (SELECT wallet FROM rewards WHERE seq = 2)"
    )
    await db.execute(f"DELETE FROM transfers WHERE {unread}")
    await db.execute(f"DELETE FROM mints WHERE {unread}")
    report = await cli.read_report()
    assert kinds(report) == {
        "minted_without_mint": 1,
        "foreign_mint": 1,
        "supply_and_balances_differ": 1,
        "used_without_mint": 1,
    }
    supply, used = report["disagreements"][2:]
    assert supply["rows"][0]["chain"] == {"ltz": 400}
    assert supply["rows"][0]["balances"] == {"ltz": 300}
    assert used["rows"] == [{"id": "seq 2", "reward": {"id": id_}}]

    await db.execute(
        "UPDATE mints SET reference = set_byte(reference, 31, 9) WHERE get_byte(reference, 31) = 1"
    )
    report = await cli.read_report()
    assert {each["kind"]: [row["id"] for row in each["rows"]] for each in report["disagreements"]}[
        "mint_without_use"
    ] == ["seq 9"]


def lying(method: str, params: Sequence[Any], result: Any) -> Any:
    """LTZ's supply is one unit less."""
    is_supply = method == "eth_call" and params[0]["data"] == hex_of(selector("totalSupply()"))
    return f"0x{int(result, 16) - 1:064x}" if is_supply else result


def behind(method: str, params: Sequence[Any], result: Any) -> Any:
    return None if method == "eth_getBlockByNumber" and params[0] != "0x0" else result


@pytest.mark.parametrize(
    ("lie", "honest", "expected", "note"),
    [
        (lying, 1, {"nodes_contradict": 2}, None),
        (lying, 2, {}, "contradicts most nodes about LTZ and was not believed"),
        (behind, 1, {}, None),
    ],
)
async def test_no_single_node_decides_whether_ltz_agrees(
    cli: BooksCli,
    on_chain: OnChain,
    monkeypatch: pytest.MonkeyPatch,
    lie: Lie,
    honest: int,
    expected: dict[str, int],
    note: str | None,
) -> None:
    """Not even the first one."""
    await on_chain.mint()
    await on_chain.read()
    dev, url = chain_targets.resolve_chain_target(cli.data_dir, None), on_chain.deployed.rpc.url
    async with a_faulty_node(url) as liar:
        liar.faults = Faults(lies=(lie,))
        several = replace(dev, rpc_urls=(liar.url, *[url] * honest))
        monkeypatch.setattr(books_report, "resolve_chain_target", lambda *_: several)
        report = await cli.read_report()

    assert kinds(report) == expected
    assert (report["chain"]["supplyLtz"] is None) is bool(expected)
    assert [note in each for each in report["notes"]] == [True] * (note is not None)


async def test_a_chain_that_cannot_be_asked_is_said_and_no_failure(
    cli: BooksCli, rows: BookRows, database_url: str
) -> None:
    await rows.minted(await rows.event())
    anywhere = {name: a_wallet(1) for name in CONTRACTS}
    async with a_server(always("0x1")) as other:
        add_node(cli.data_dir, other.url, anywhere)
        [note] = (await cli.read_report())["notes"]
        assert note.startswith(NO_NODE)
        assert f"it is on another chain than the database's, {CHAIN_ID}" in note
    done = await cli.books()
    assert done.code == 0
    assert re.match(f"{NO_NODE}No node answers .*: No connection to the node", done.err)


async def test_books_agree_at_every_moment_of_a_busy_instance(one_instance: Instance) -> None:
    cli = BooksCli(one_instance.data_dir)
    before = await cli.read_report()
    assert kinds(before) == {}
    is_over = asyncio.Event()

    async def customers() -> int:
        count = 0
        while not is_over.is_set():
            answer = await one_instance.post_event(f"{uuid4().hex}@mail.example")
            count += answer.status in {200, 202}
        return count

    minted: list[int] = []

    async def mints_were_indexed_between_reports() -> bool:
        report = await cli.read_report()
        assert (kinds(report), report["notes"]) == ({}, [])
        minted.append(report["totals"]["minted"]["count"])
        return len(minted) >= 8 and len(set(minted)) > 2

    crowd = [asyncio.create_task(customers()) for _ in range(8)]
    try:
        await until(mints_were_indexed_between_reports, 60.0)
    finally:
        is_over.set()
        counts = await asyncio.gather(*crowd)
    await all_minted(one_instance)
    after = await cli.read_report()
    answered = [report["totals"]["answered"]["count"] for report in (before, after)]
    assert answered[1] - answered[0] == sum(counts)
    assert after["totals"]["onChain"] == after["totals"]["minted"]
    assert after["chain"]["supplyLtz"] == after["chain"]["balancesLtz"]


# --- statements ---------------------------------------------------------------------------------


async def test_a_statement_is_rfc_4180_and_its_sum_is_the_reports(
    cli: BooksCli, rows: BookRows, db: Connection, tmp_path: Path
) -> None:
    event, paid = await rows.event(ltz=70), await rows.payment(cents=1_205)
    check_in, theirs = await rows.other(3, ltz=5), await rows.event(TWO, ltz=900)
    for number, id_ in enumerate((event, paid, check_in, theirs)):
        await rows.recorded(id_, MARCH + timedelta(days=number, microseconds=1_500))
    await rows.minted(event)
    user = await db.fetchrow(
        "SELECT u.* FROM users u JOIN events e ON user_id = u.id WHERE ltz = 70"
    )
    mint = await db.fetchval("SELECT mint_transaction_hash FROM rewards WHERE id = $1", event)

    file = tmp_path / "one.csv"
    done = await cli.books("--brand", "One", "--statement", file)

    buyer, guest = checksummed(a_wallet(7)), checksummed(a_wallet(8))
    lines = (
        "time,kind,id,event_type,user_id,wallet,ltz,usd,state,transaction_hash,block",
        f"2026-03-01T00:00:00.001Z,event,{event},form_submit,{user['id']},{{}},70,,minted,{{}},1",
        f"2026-03-02T00:00:00.001Z,purchase,cs_{paid.hex},,,{buyer},12050,12.05,queued,,",
        f"2026-03-03T00:00:00.001Z,check_in,{check_in},,,{guest},5,,queued,,",
    )
    expected = "".join(f"{line}\r\n" for line in lines)
    wallet = checksummed(Address(user["wallet"]))
    assert file.read_bytes().decode() == expected.format(wallet, hex_of(mint))
    assert done.err == "3 rows, 12,125 LTZ.\n"
    report = (await cli.read_report("--brand", "One"))["totals"]
    assert report["answered"]["ltz"] + report["bought"]["ltz"] + report["other"]["ltz"] == 12_125


async def test_a_statement_of_days_of_utc_leaves_the_last_one_out(
    cli: BooksCli, rows: BookRows
) -> None:
    edges = [MARCH - timedelta(microseconds=1), MARCH, MARCH + timedelta(days=1, microseconds=-1)]
    for at in (*edges, MARCH + timedelta(days=1)):
        await rows.recorded(await rows.event(), at)

    day = await cli.statement("--from", "2026-03-01", "--to", "2026-03-02")
    before = await cli.statement("--to", "2026-03-01")
    later = await cli.statement("--from", "2026-03-02")

    assert [row["time"] for row in day] == [iso(edges[1]), iso(edges[2])]
    assert (len(before), len(later)) == (1, 1)


async def test_no_cell_of_a_statement_is_a_formula(
    cli: BooksCli, rows: BookRows, db: Connection
) -> None:
    evil = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", 'a,"b"\nc', "é=1"]
    for number, text in enumerate(evil):
        await rows.recorded(await rows.event(event_type=text), MARCH + timedelta(seconds=number))

    cells = [row["event_type"] for row in await cli.statement()]

    assert cells == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "'\r=1", *evil[6:]]


async def test_a_statements_file_is_there_whole_or_not_at_all(
    cli: BooksCli, rows: BookRows, db: Connection, tmp_path: Path
) -> None:
    await rows.event()
    file = tmp_path / "march.csv"
    file.write_text("what was there")

    done = await cli.books("--brand", "One", "--statement", file)
    assert (done.code, done.out, done.err) == (0, "", "1 row, 100 LTZ.\n")
    whole = file.read_bytes()
    assert whole.count(b"\r\n") == 2

    await db.execute("DROP TABLE attempts CASCADE")
    failed = await cli.books("--brand", "One", "--statement", file)
    assert failed.code == 1
    assert file.read_bytes() == whole
    assert set(os.listdir(file.parent)) == {"data", "march.csv"}  # noqa: PTH208


async def test_a_statement_may_go_into_a_pipe_with_a_name(
    cli: BooksCli, rows: BookRows, tmp_path: Path
) -> None:
    await rows.event()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    read = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
    done = await cli.books("--brand", "One", "--statement", pipe)

    assert (done.code, (await read).count(b"\r\n")) == (0, 2)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


async def test_whoever_stops_reading_a_statement_gets_a_sentence(
    cli: BooksCli, rows: BookRows, db: Connection
) -> None:
    await db.execute(
        """
        INSERT INTO payments (session_id, reward_id, brand_id, wallet, usd_cents, ltz,
                              payment_intent_id)
        SELECT 'cs_' || n, gen_random_uuid(), $1, $1, 50, 500, 'pi' FROM generate_series(1, 5000) n
        """,
        ONE.address,
    )
    command = await begin_ltzd(
        *("books", "--brand", "One", "--statement", "-", "--data-dir", cli.data_dir)
    )
    assert command.stdout is not None
    assert command.stderr is not None
    await command.stdout.readline()
    command.stdout._transport.close()  # type: ignore[attr-defined]

    assert (
        await command.stderr.read()
        == b"ltzd: The reader closed the pipe before the end of the statement.\n"
    )
    assert await command.wait() == 1


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--statement", "x.csv"), 1, "A statement is for one brand: name it with --brand."),
        (("--brand", "One", "--statement", "-", "--json"), 1, "omit --json"),
        (("--from", "2026-03-01", "--to", "2026-03-01"), 1, "--to must be a later day"),
        (("--from", "1.3.2026"), 2, "--from"),
        (("--brand", "Nobody", "--statement", "-"), 1, "No brand has the id or the name"),
        (("--brand", "One", "--statement", "/proc/no/x.csv"), 1, "/proc/no/x.csv cannot be"),
        (("--brand", "One", "--statement", "/proc"), 1, "/proc cannot be written"),
        (("--brand", "One", "--statement", "/dev/full"), 1, "No space left on device"),
    ],
)
async def test_what_cannot_be_told_is_a_sentence(
    cli: BooksCli, rows: BookRows, options: tuple[str, ...], code: int, sentence: str
) -> None:
    done = await cli.books(*options)
    assert (done.code, done.out) == (code, "")
    assert sentence in done.err


# --- acknowledged rows -----------------------------------------------------------------------


async def test_an_acknowledged_row_is_listed_with_its_reason_and_disagrees_no_more(
    cli: BooksCli, rows: BookRows, db: Connection
) -> None:
    await rows.minted(await rows.event())
    lost = [str(await rows.event()) for _ in range(22)]
    await db.execute("DELETE FROM rewards WHERE id::text = ANY($1::text[])", lost)

    done = await cli.acknowledge(
        "event_without_reward", *lost[:21], "--reason", "lost by the restore of 3 March"
    )
    assert "21 rows of event_without_reward are acknowledged; 1 more" in done.out
    shown, report = await cli.books(), await cli.read_report()
    assert kinds(report) == {"event_without_reward": 1}
    assert [row["id"] for row in report["disagreements"][0]["rows"]] == [lost[21]]
    (explained,) = report["acknowledged"]
    assert (explained["kind"], explained["count"]) == ("event_without_reward", 21)
    assert explained["rows"][0]["reason"] == "lost by the restore of 3 March"
    assert "event_without_reward (acknowledged, 21)" in shown.out
    assert "because: lost by the restore of 3 March" in shown.out
    assert "and 1 more" in shown.out

    again = await cli.acknowledge("event_without_reward", "--all", "--reason", "the same", "--json")
    assert again.json == {
        "kind": "event_without_reward",
        "acknowledged": [lost[21]],
        "open": 0,
    }
    assert (await cli.read_report())["agree"]

    done = await cli.acknowledge("event_without_reward", "--all", "--withdraw")
    assert "22 rows of event_without_reward count as disagreements again." in done.out
    assert kinds(await cli.read_report()) == {"event_without_reward": 22}


async def test_only_a_row_of_the_report_is_acknowledged_and_only_with_a_reason(
    cli: BooksCli, rows: BookRows, db: Connection
) -> None:
    lost = str(await rows.event())
    await db.execute("DELETE FROM rewards WHERE id::text = $1", lost)
    for arguments, sentence in (
        (("event_without_reward", lost), "Give --reason"),
        (("event_without_reward", "--reason", "x"), "Name the rows"),
        (("event_without_reward", lost, "--all", "--reason", "x"), "Name the rows"),
        (("foreign_mint", lost, "--reason", "x"), "is no foreign_mint in the books now"),
        (("supply_and_balances_differ", "--all", "--reason", "x"), "cannot be acknowledged"),
        (("foreign_mints", "--all", "--reason", "x"), "foreign_mints is no kind of disagreement"),
        (
            ("foreign_mints", "--all", "--reason", "x"),
            "event_without_reward, failed_charge_on_chain, failed_redemption_on_chain",
        ),
        (("foreign_mints", "--all", "--withdraw"), "foreign_mints is no kind of disagreement"),
    ):
        done = await cli.acknowledge(*arguments)
        assert (done.code, sentence in done.err) == (1, True), done.err
    assert await db.fetchval("SELECT count(*) FROM books_acknowledgements") == 0


async def test_a_foreign_mint_is_acknowledged_by_its_reference(
    cli: BooksCli, on_chain: OnChain
) -> None:
    await on_chain.mint()
    await on_chain.mint_unasked()
    await on_chain.read()
    assert kinds(await cli.read_report()) == {"foreign_mint": 1}
    await cli.acknowledge("foreign_mint", "--all", "--reason", "its event was lost")
    report = await cli.read_report()
    assert report["agree"]
    assert [row["reason"] for row in report["acknowledged"][0]["rows"]] == ["its event was lost"]
