"""`ltzd wallet` lists, drains and retires the operator's wallets, and tells the consequences."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.contracts.artifacts import CONTRACTS
from ltzd.chain.deployment import agreement
from ltzd.cli.wallet import chain_facts
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.transactions import State, Transaction
from ltzd.store.database import Connection, Pool
from ltzd.store.indexer import chains
from ltzd.store.operator import lanes, transactions, wallets
from ltzd.store.operator.leases import lane_lease
from ltzd.store.operator.wallets import WalletState
from ltzd.store.status import read_status
from ltzd.values import Address, checksummed, hex_of
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, OTHERS_AT, FakeNode
from tests.support.commands import Outcome, ltzd
from tests.support.rows.core import (
    MINTER,
    a_lane,
    a_wallet,
    an_attempt,
    an_intent,
    follow,
    pool,
    save,
)
from tests.support.secret_files import write_secret
from tests.support.surfaces.event_surface import a_served_node

__all__ = ["pool"]

NAME = checksummed(MINTER.address)


@pytest_asyncio.fixture(autouse=True)
async def _chain(pool: Pool) -> None:
    await follow(pool, FakeNode())


async def wallet(data_dir: Path, *arguments: object) -> Outcome:
    return await ltzd("wallet", *arguments, "--data-dir", data_dir)


async def shown(data_dir: Path) -> Any:
    return (await wallet(data_dir, "show", NAME, "--json")).json


async def a_wallet_of_the_settings(db: Connection) -> None:
    await wallets.add(db, CHAIN_ID, MINTER.address, "mint")


async def a_process_holds(db: Connection, wallet: Address) -> None:
    await db.execute(
        "INSERT INTO leases VALUES ($1, gen_random_uuid(), 'host:17', 17, now(), now(), now(), "
        "now() + interval '1 hour')",
        lane_lease(CHAIN_ID, wallet),
    )


async def an_open_transaction(pool: Pool, db: Connection) -> None:
    """The wallet's lane signs one transaction."""
    lane = await a_lane(pool)
    await transactions.store_signed(db, lane, an_intent(0), an_attempt("a"))


async def displace(pool: Pool, db: Connection) -> None:
    lane = await a_lane(pool)
    row = await db.fetchval("SELECT id FROM transactions")
    await save(db, lane, row, State.SIGNED, Transaction(State.DISPLACED))


async def test_a_new_database_has_no_wallet(data_dir: Path) -> None:
    done = await wallet(data_dir, "list")
    assert (done.code, done.out) == (0, "")
    assert "There is no wallet" in done.err
    assert (await wallet(data_dir, "list", "--json")).json == []


async def test_a_wallet_is_listed_with_its_lane_and_its_process(
    data_dir: Path, db: Connection, pool: Pool
) -> None:
    await wallets.add(db, CHAIN_ID, MINTER.address, "mint", {"key_file": "/keys/mint"})
    await an_open_transaction(pool, db)
    lane = await a_lane(pool)
    await lanes.report_working(db, lane, "fees")
    await a_process_holds(db, MINTER.address)

    (row,) = (await wallet(data_dir, "list", "--json")).json
    assert row.keys() == (await shown(data_dir)).keys()
    assert row["wallet"] == NAME
    assert (row["kind"], row["state"], row["process"]) == ("mint", "active", "host:17")
    assert (row["inFlight"], row["signed"], row["pausedFor"]) == (1, 1, "fees")
    assert row["signer"] == {"key_file": "/keys/mint"}

    page = await wallet(data_dir, "list")
    assert NAME in page.out
    assert "key_file /keys/mint" in page.out
    page = await wallet(data_dir, "show", NAME)
    assert "host:17" in page.out
    assert "It takes new work." in page.err


async def test_wallets_that_nobody_serves_are_counted_by_kind(db: Connection) -> None:
    assert (await read_status(db)).unserved == {}
    await a_wallet_of_the_settings(db)
    await wallets.add(db, CHAIN_ID, a_wallet(7), "relay")
    await wallets.add(db, CHAIN_ID, a_wallet(8), "relay")
    await a_process_holds(db, a_wallet(8))
    assert (await read_status(db)).unserved == {"mint": 1, "relay": 1}
    await wallets.set_state(db, CHAIN_ID, MINTER.address, WalletState.RETIRED)
    assert (await read_status(db)).unserved == {"relay": 1}


async def test_a_drained_wallet_is_told_once_everything_is_final(
    data_dir: Path, db: Connection, pool: Pool
) -> None:
    await a_wallet_of_the_settings(db)
    await an_open_transaction(pool, db)

    done = await wallet(data_dir, "drain", NAME, "--reason", "moved")
    assert done.code == 0
    assert "1 of its transactions are not final yet" in done.err
    assert "No other mint wallet is active" in done.err
    assert (await shown(data_dir))["isDrained"] is False
    assert (await shown(data_dir))["reason"] == "moved"

    await displace(pool, db)
    assert (await shown(data_dir))["isDrained"] is True
    assert "ltzd wallet retire" in (await wallet(data_dir, "show", NAME)).err
    again = await wallet(data_dir, "drain", NAME)
    assert "nothing changes" in again.err


async def test_a_draining_lane_that_does_not_know_yet_is_not_drained(
    data_dir: Path, db: Connection, pool: Pool
) -> None:
    await a_wallet_of_the_settings(db)
    lane = await a_lane(pool)
    await a_process_holds(db, MINTER.address)
    await wallet(data_dir, "drain", NAME)
    assert (await shown(data_dir))["isDrained"] is False
    await lanes.report_working(db, lane, "draining")
    assert (await shown(data_dir))["isDrained"] is True


async def test_a_wallet_with_open_work_is_not_retired_unless_its_key_is_gone(
    data_dir: Path, db: Connection, pool: Pool
) -> None:
    await a_wallet_of_the_settings(db)
    await an_open_transaction(pool, db)
    (epoch,) = await db.fetchrow("SELECT epoch FROM lanes")

    await wallet(data_dir, "drain", NAME)
    refused = await wallet(data_dir, "retire", NAME)
    assert refused.code == 1
    assert "1 transactions that are not final: retire it when it is drained" in refused.err
    assert (await shown(data_dir))["state"] == "draining"
    assert await db.fetchval("SELECT epoch FROM lanes") == epoch

    both = await wallet(data_dir, "retire", NAME, "--lost", "--stolen")
    assert both.code == 1

    stolen = await wallet(data_dir, "retire", NAME, "--stolen", "--reason", "laptop")
    assert stolen.code == 0
    assert "a lane without the key" in stolen.err
    assert "guardian revoke its roles (MINTER)" in stolen.err
    row = await shown(data_dir)
    assert (row["state"], row["reason"]) == ("retired", "stolen: laptop")
    assert await db.fetchval("SELECT epoch FROM lanes") == epoch + 1


@pytest.mark.parametrize(("cause", "code"), [((), 1), (("--lost",), 0), (("--stolen",), 0)])
async def test_an_active_wallet_that_is_idle_is_ended_only_for_a_cause(
    data_dir: Path, db: Connection, cause: tuple[str, ...], code: int
) -> None:
    await a_wallet_of_the_settings(db)
    done = await wallet(data_dir, "retire", NAME, *cause)
    assert done.code == code
    if code:
        assert f"drain it first (`ltzd wallet drain {NAME}`)" in done.err
    assert (await shown(data_dir))["state"] == ("active" if code else "retired")


@asynccontextmanager
async def naming(node: FakeNode, data_dir: Path) -> AsyncIterator[None]:
    """The dev instance's file names the node."""
    names = ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow")
    async with a_served_node(node) as url:
        content = json.loads((data_dir / "dev.json").read_text()) | {
            "rpcUrl": url,
            "chainId": CHAIN_ID,
            "contracts": dict(zip(names, map(hex_of, (LTZ_AT, *OTHERS_AT)), strict=True)),
        }
        write_secret(data_dir / "dev.json", json.dumps(content))
        yield


@pytest.mark.parametrize(
    ("balance", "is_down", "sentence"),
    [
        (15 * 10**17, False, "The wallet holds 1.5 of the chain's coin: move it before the key"),
        (0, False, "the wallet holds no coin: its key can be destroyed"),
        (0, True, "No node shows its balance: check it, and move its coin before its key"),
    ],
)
async def test_a_key_can_be_destroyed_once_its_wallet_holds_no_coin(
    data_dir: Path, db: Connection, *, balance: int, is_down: bool, sentence: str
) -> None:
    await a_wallet_of_the_settings(db)
    await wallet(data_dir, "drain", NAME)
    node = FakeNode()
    node.balance, node.is_down = balance, is_down
    async with naming(node, data_dir):
        done = await wallet(data_dir, "retire", NAME)
    assert done.code == 0
    assert sentence in done.err
    assert ("can be destroyed" in done.err) is (balance == 0 and not is_down)


async def test_a_drained_wallet_is_retired_for_good(data_dir: Path, db: Connection) -> None:
    await a_wallet_of_the_settings(db)
    await wallet(data_dir, "drain", NAME)
    done = await wallet(data_dir, "retire", NAME)
    assert done.code == 0
    assert "No node shows its balance" in done.err
    assert "Remove it from the settings" in done.err
    assert "Retired wallets that have finished: " in (await wallet(data_dir, "list")).err
    assert NAME in (await wallet(data_dir, "list", "--all")).out

    for verb in ("drain", "retire"):
        again = await wallet(data_dir, verb, NAME)
        assert again.code == 1
        assert "was retired at" in again.err
    row = await wallets.find(db, CHAIN_ID, MINTER.address)
    assert row is not None
    assert row.state is WalletState.RETIRED


async def test_a_retired_wallet_is_granted_no_role(data_dir: Path, db: Connection) -> None:
    """Its key may be stolen, and its address stands beside the new wallet's in the runbook."""
    await a_wallet_of_the_settings(db)
    grant = ("grant", NAME, "--kind", "mint", "--mint-limit", "5", "--unsigned")
    node = FakeNode()
    node.is_minter = False
    async with naming(node, data_dir):
        assert NAME[2:].lower() in (await wallet(data_dir, *grant)).out
        await wallet(data_dir, "retire", NAME, "--stolen")
        refused = await wallet(data_dir, *grant)

    assert (refused.code, refused.out) == (1, "")
    assert f"{NAME} was retired at " in refused.err
    assert "grant the role to another wallet. Nothing was sent." in refused.err


async def test_no_node_alone_tells_the_roles_of_a_new_wallet(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "_LAG_SECONDS", 0.1)
    contracts = dict(zip(CONTRACTS, (LTZ_AT, *OTHERS_AT), strict=True))
    chain = await chains.identity(db)
    assert chain is not None
    honest, liar = FakeNode(), FakeNode()
    liar.is_minter = False
    async with a_served_node(liar) as first, a_served_node(honest) as second:
        with pytest.raises(NodeUnavailable, match="contradict each other about the wallet's roles"):
            await chain_facts.read((first, second), chain, contracts, MINTER.address, "mint")


async def test_a_key_file_whose_name_is_not_utf8_is_a_sentence(data_dir: Path) -> None:
    key = write_secret(data_dir / "caf\udce9", "11" * 32)
    async with naming(FakeNode(), data_dir):
        done = await wallet(data_dir, "add", "--kind", "mint", "--key-file", key)

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("ltzd: An argument holds bytes that are not UTF-8")


@pytest.mark.parametrize(
    ("command", "is_minter"),
    [(("grant", NAME, "--kind", "mint", "--mint-limit", "5"), False), (("revoke", NAME), True)],
)
async def test_unsigned_transactions_are_one_json_document(
    data_dir: Path, command: tuple[str, ...], is_minter: bool
) -> None:
    node = FakeNode()
    node.is_minter = is_minter
    async with naming(node, data_dir):
        printed = await wallet(data_dir, *command, "--unsigned")
        document = (await wallet(data_dir, *command, "--unsigned", "--json")).json

    done = f"{command[0].removesuffix('e')}ed"
    decoder, rest, transactions = json.JSONDecoder(), printed.out, []
    while rest := rest.strip():
        transaction, end = decoder.raw_decode(rest)
        transactions.append(transaction)
        rest = rest[end:]
    assert transactions
    assert document == {"wallet": NAME, done: [], "transactions": transactions}


async def test_a_retired_wallet_changes_its_state_no_more(db: Connection) -> None:
    await a_wallet_of_the_settings(db)
    set_to = partial(wallets.set_state, db, CHAIN_ID, MINTER.address)
    assert await set_to(WalletState.RETIRED, "lost")
    assert not await set_to(WalletState.DRAINING)
    assert not await set_to(WalletState.ACTIVE)
    assert await set_to(WalletState.RETIRED, "stolen")
    row = await wallets.find(db, CHAIN_ID, MINTER.address)
    assert row is not None
    assert (row.state, row.reason) == (WalletState.RETIRED, "stolen")


@pytest.mark.parametrize(
    ("address", "words"),
    [("0x12", "not a wallet's address"), (f"0x{'12' * 20}", "none of the operator's wallets")],
)
async def test_an_unknown_wallet_is_refused(data_dir: Path, address: str, words: str) -> None:
    for verb in ("show", "drain", "retire"):
        done = await wallet(data_dir, verb, address)
        assert done.code == 1
        assert words in done.err
        assert "Traceback" not in done.err


async def test_the_two_kinds_of_wallets_are_told_apart_by_the_help() -> None:
    for group, other in (("wallet", "`ltzd wallets`"), ("wallets", "`ltzd wallet`")):
        assert other in " ".join((await ltzd(group, "--help")).out.split())


GRANT = ("grant", NAME, "--kind", "mint")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("revoke", NAME), "--key, --unsigned: give exactly one of them"),
        (("revoke", "0x12", "--unsigned"), "'0x12' is not a wallet's address"),
        ((*GRANT, "--unsigned"), "--mint-limit: give it for a mint"),
        (
            ("grant", NAME, "--kind", "relay", "--mint-limit", "5", "--unsigned"),
            "--mint-limit: give it for a mint",
        ),
        (
            (*GRANT, "--mint-limit", "-5", "--unsigned"),
            "--mint-limit -5",
        ),
        (
            (*GRANT, "--mint-limit", "1" + "0" * 60, "--unsigned"),
            "The mint limit must lie between 0.000001 LTZ and",
        ),
        (
            (*GRANT, "--mint-limit", "5", "--mint-window", str(2**40), "--unsigned"),
            "window must be at least a second, and less than 2^40 seconds",
        ),
    ],
    ids=[
        *("no key", "no address", "no limit", "a relay wallet's limit", "a negative limit"),
        *("a limit above LTZ's", "a window above LTZ's"),
    ],
)
async def test_wrong_options_for_roles_are_told_before_the_chain_is_asked(
    data_dir: Path, arguments: tuple[str, ...], fault: str
) -> None:
    done = await wallet(data_dir, *arguments)
    assert done.code == 1
    assert fault in done.err
