"""On a real chain the block's hash decides which logs an answer lacks, and which are invented."""

from collections import defaultdict
from typing import Any

import pytest

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.indexer.contracts import IndexedContract, indexed_contracts
from ltzd.indexer.log_checks import LogChecks
from ltzd.values import Hash32, hash_of
from tests.indexer.completeness.test_totals import live
from tests.indexer.test_contracts_on_a_chain import deployed
from tests.support.chain.contracts import Contracts as Deployed

__all__ = ["deployed"]

Logs = dict[Hash32, list[dict[str, Any]]]
NAMES = {
    "ltz": "LTZ",
    "perk_nft": "PerkNFT",
    "points_sale": "PointsSale",
    "business_escrow": "BusinessEscrow",
}


def contracts_of(deployed: Deployed) -> tuple[IndexedContract, ...]:
    return indexed_contracts({ours: deployed.at[name] for ours, name in NAMES.items()})


async def the_chain(deployed: Deployed) -> tuple[list[Header], Logs]:
    """All blocks of a chain on which every contract has logged, and the logs by block."""
    await live(deployed)
    head = await deployed.node.block("latest")
    assert head is not None
    at = [contract.address for contract in contracts_of(deployed)]
    headers, entries = await deployed.node.headers_and_logs(1, head.number, *at)
    logs: Logs = defaultdict(list)
    for entry in entries:
        logs[hash_of(entry["blockHash"])].append(entry)
    return [header for header in headers if header is not None], dict(logs)


async def check(deployed: Deployed, headers: list[Header], logs: Logs) -> list[Any] | None:
    return await LogChecks().check_range(deployed.node, headers, logs, contracts_of(deployed))


@pytest.mark.parametrize("name", NAMES)
async def test_omitted_logs_of_a_contract_are_the_ones_that_come_back(
    deployed: Deployed, name: str
) -> None:
    headers, logs = await the_chain(deployed)
    assert await check(deployed, headers, logs) == []
    address = deployed.at[NAMES[name]].hex()
    omitted = {
        (entry["blockHash"], entry["logIndex"])
        for entries in logs.values()
        for entry in entries
        if entry["address"] == f"0x{address}"
    }
    rest = {
        block: [entry for entry in entries if entry["address"] != f"0x{address}"]
        for block, entries in logs.items()
    }
    missing = await check(deployed, headers, {block: rest[block] for block in rest if rest[block]})
    assert missing is not None
    indexed = {topic for each in contracts_of(deployed) for topic in each.topics}
    shown = {(entry["blockHash"], entry["logIndex"]) for entry in missing}
    assert shown <= omitted
    for block, index in omitted - shown:
        entry = next(each for each in logs[hash_of(block)] if each["logIndex"] == index)
        assert hash_of(entry["topics"][0]) not in indexed, entry


async def test_an_answer_with_an_invented_log_is_refused(deployed: Deployed) -> None:
    headers, logs = await the_chain(deployed)
    block, entries = next(
        (block, entries)
        for block, entries in logs.items()
        if len({e["address"] for e in entries}) > 1
    )
    omitted = entries[0]["address"]
    false = [entry for entry in entries if entry["address"] != omitted]
    false.append({**false[-1], "logIndex": "0x63"})
    assert await check(deployed, headers, {**logs, block: false}) is None


async def test_the_hash_of_a_block_proves_an_empty_answer(deployed: Deployed) -> None:
    """No second node is needed, although another one might be usable."""
    headers, _ = await the_chain(deployed)

    class NotAlone(Node):
        is_alone = False

    node = NotAlone(deployed.rpc)
    sale = deployed.at["PointsSale"]  # The newest block locks a deal.
    assert await LogChecks().missing_logs(node, headers[-1], [sale], has_logs=False) == []
    assert node.others() == []
