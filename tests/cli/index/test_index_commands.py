"""`ltzd index check` and `repair`: what they find, change and print."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.node.rpc import RpcError
from ltzd.cli.index import check
from ltzd.cli.index.target import resolve_index_target
from ltzd.errors import ImpossibleFact
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.repair import IndexRepair
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS, hex_of
from tests.support.chain.fake_node import ADDRESSES, CHAIN_ID, CONTRACTS, transfer_log
from tests.support.chain.scripted_node import a_server
from tests.support.commands import Outcome, ltzd
from tests.support.index_model.node import LyingNode
from tests.support.rows.core import a_wallet, follow, pool, value

__all__ = ["pool"]

ANN, BOB = a_wallet(1), a_wallet(2)
DEV_NAMES = dict(
    zip(("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow"), ADDRESSES.values(), strict=True)
)


class Index:
    """An index that lacks ANN's receipt in block 31, which the node has hidden."""

    def __init__(self, pool: Pool, url: str, data_dir: Path) -> None:
        self.pool, self._url, self._data_dir = pool, url, data_dir
        self.node = LyingNode()
        self.node.final_depth = 4

    async def start(self) -> None:
        chain = await follow(self.pool, self.node)
        self.node.mine(30)
        block = self.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
        self.node.mine(9)
        self.node.lies[hex_of(block.hash), "0x0"] = lambda _log: None
        policy = IndexerPolicy(head_blocks=2, range_blocks=20, second_check_seconds=0.0)
        hub, leases = WakeupHub(""), Leases(self._url)
        self.follower = Follower(self.pool, leases, self.node.node, chain, CONTRACTS, hub, policy)
        await self.follower.begin_term()
        while await self.follower.step():
            pass
        self.node.lies = {}

    def answer(self, request: Any) -> object:
        """The node's answers over HTTP."""
        if isinstance(request, list):
            return [self.answer(each) for each in request]
        try:
            result = self.node._methods[request["method"]](*request["params"])
        except RpcError as error:
            body = {"code": error.code, "message": error.message}
            return {"jsonrpc": "2.0", "id": request["id"], "error": body}
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}

    async def ltzd(self, *arguments: object) -> Outcome:
        return await ltzd("index", *arguments, "--data-dir", self._data_dir)


@pytest_asyncio.fixture
async def index(pool: Pool, database_url: str, data_dir: Path) -> AsyncIterator[Index]:
    index = Index(pool, database_url, data_dir)
    await index.start()
    async with a_server(index.answer) as rpc:
        dev = json.loads((data_dir / "dev.json").read_text())
        dev["rpcUrl"], dev["chainId"] = rpc.url, 31337
        dev["contracts"] = {name: hex_of(address) for name, address in DEV_NAMES.items()}
        (data_dir / "dev.json").write_text(json.dumps(dev))
        yield index


async def test_a_check_names_what_differs_and_changes_nothing(index: Index) -> None:
    outcome = await index.ltzd("check")

    assert outcome.code == 1
    assert outcome.out.startswith("missing: transfers, block 31, log 0, transaction 0x")
    assert "Blocks 1 to 40: 1 missing, 0 foreign, 0 wrong." in outcome.err
    assert re.search(r"^Run: ltzd index repair --data-dir \S+$", outcome.err, re.MULTILINE)
    assert await value(index.pool, "SELECT count(*) FROM transfers") == 0


async def test_a_repair_mends_and_lets_a_stopped_index_go_on(index: Index) -> None:
    async with session(index.pool) as connection:
        await chains.stop(connection, CHAIN_ID, 1, "A reason.")
    outcome = await index.ltzd("repair")

    assert outcome.code == 0, outcome.err
    assert "1 fact was corrected." in outcome.err
    assert "The index was stopped, and continues now." in outcome.err
    assert await value(index.pool, "SELECT amount FROM balances") == 5
    assert await value(index.pool, "SELECT stopped_reason FROM chains") is None

    again = await index.ltzd("repair")
    assert again.code == 0
    assert "Blocks 1 to 40: the index agrees with the nodes." in again.err
    index.node.mine(logs=[transfer_log(ANN, BOB, 2)])
    while await index.follower.step():
        pass
    assert await value(index.pool, "SELECT sum(amount) FROM balances") == 5


async def test_only_the_named_blocks_are_compared(index: Index) -> None:
    outcome = await index.ltzd("check", "--from", 5, "--to", 30, "--json")
    assert outcome.json == {
        "from": 5,
        "to": 30,
        "missing": 0,
        "foreign": 0,
        "wrong": 0,
        "derived": {},
        "mended": 0,
        "undecided": [],
        "leftOut": False,
        "stopped": None,
        "differences": [],
    }


async def test_a_node_of_another_chain_repairs_nothing(index: Index) -> None:
    index.node.forget_blocks(20)
    index.node.mine(20)
    outcome = await index.ltzd("repair")

    assert outcome.code == 1
    assert "does not show the indexed block 40" in outcome.err
    assert await value(index.pool, "SELECT count(*) FROM transfers") == 0


async def test_two_repairs_at_once_mend_once(index: Index) -> None:
    where = resolve_index_target(index._data_dir, None)
    reports = await asyncio.gather(
        *(check.compare(where, None, None, repairs=True, is_quiet=True) for _ in range(2))
    )
    assert all(report.is_corrected for report in reports)
    assert await value(index.pool, "SELECT amount FROM balances") == 5


async def test_blocks_that_a_reorg_undoes_meanwhile_are_not_among_those_that_agree(
    index: Index,
) -> None:
    assert (await index.ltzd("repair")).code == 0
    read = index.node._methods["eth_getBlockByNumber"]

    def reorganised(block: str, *rest: object) -> object:
        if block == hex(40):
            index.node._methods["eth_getBlockByNumber"] = read
            index.node.forget_blocks(3)
            index.node.mine(1)
        return read(block, *rest)

    index.node._methods["eth_getBlockByNumber"] = reorganised
    checking = asyncio.create_task(index.ltzd("check", "--json"))
    while await _cursor(index) != 38:
        await index.follower.step()
    report = (await checking).json
    assert (report["from"], report["to"]) == (1, 38)


async def _cursor(index: Index) -> Any:
    return await value(index.pool, "SELECT cursor_number FROM chains")


async def test_derived_rows_that_do_not_follow_from_the_facts_are_made_anew(index: Index) -> None:
    assert (await index.ltzd("repair")).code == 0
    await value(index.pool, "UPDATE balances SET amount = 1")
    checked = await index.ltzd("check")
    assert checked.code == 1
    assert "Derived rows that do not follow from the facts: 1 of balances." in checked.err
    repaired = await index.ltzd("repair")
    assert repaired.code == 0
    assert "1 of balances, and were made anew." in repaired.err
    assert await value(index.pool, "SELECT amount FROM balances") == 5


async def test_facts_that_contradict_each_other_end_a_repair_with_a_sentence(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def contradict(*_: object, **_options: object) -> None:
        raise ImpossibleFact("A wallet without a balance spends LTZ")

    monkeypatch.setattr(IndexRepair, "check_derived", contradict)
    done = await index.ltzd("repair")
    assert done.code == 1
    assert "ltzd: A wallet without a balance spends LTZ\n" in done.err
    assert "docs/runbooks/index.md" in done.err


async def test_a_range_that_ends_before_it_begins_is_refused(index: Index) -> None:
    outcome = await index.ltzd("check", "--from", 30, "--to", 5)
    assert (outcome.code, outcome.out) == (1, "")
    assert "--to must not be below --from" in outcome.err
