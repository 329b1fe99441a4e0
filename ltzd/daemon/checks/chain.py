"""Checks the nodes, the contracts, the wallets' roles, and the clock against the newest block.

A node that does not answer is no fault if the database knows its chain: ltzd then starts without
it, and what only a node can tell is a warning.
"""

import asyncio
import time
from collections.abc import Sequence

import msgspec

from ltzd.chain.node.node import Node
from ltzd.chain.pool.pool import NodePool
from ltzd.daemon.chain_identity import Answers, NodeChain, agree, ask_nodes
from ltzd.daemon.checks import contracts
from ltzd.daemon.checks.database import DatabaseExamination
from ltzd.daemon.indexer import DEV_CHAIN_IDS
from ltzd.daemon.settings.settings import Settings
from ltzd.errors import LtzdError, Misconfigured, NodeUnavailable
from ltzd.operator.fleet.fleet import SettingsWallet
from ltzd.rules.checks import clocks
from ltzd.rules.checks.clocks import BlockSighting
from ltzd.rules.checks.findings import Finding, fault, ok, warning


class ChainPolicy(msgspec.Struct, frozen=True):
    """`answer_seconds` bounds the wait for nodes, `longest_wait` that for the next block."""

    answer_seconds: float = 4.0
    longest_wait: float = 15.0


async def examine(
    settings: Settings,
    database: DatabaseExamination,
    wallets: Sequence[SettingsWallet],
    policy: ChainPolicy,
) -> list[Finding]:
    known = database.chain
    async with NodePool(settings.node.plain_urls()) as pool:
        answers = await ask_nodes(settings, pool, known, policy.answer_seconds)
        findings = _identity(settings, database, answers)
        name = _first_of_the_chain(answers, known.chain_id if known else None)
        if name is None:
            return findings
        answer, node = answers[name], dict(pool.nodes())[name]
        assert isinstance(answer, NodeChain)
        chain_id = answer.identity.chain_id
        addresses = settings.contracts.addresses()
        codes = contracts.judge_codes(addresses, answer.codes, chain_id)
        findings += codes
        try:
            async with asyncio.timeout(policy.answer_seconds + policy.longest_wait):
                if known is None:
                    findings += await _first_block(settings, node)
                if "operator" in settings.roles and all(each.level == "ok" for each in codes):
                    findings += await contracts.wallet_findings(node, addresses, wallets, database)
                if chain_id not in DEV_CHAIN_IDS:
                    findings.append(await _clock(node, name, policy))
        except (TimeoutError, NodeUnavailable):
            sentence = f"The node {name} stopped answering, so some checks were left out."
            findings.append(warning("node", sentence))
    return findings


def _identity(settings: Settings, database: DatabaseExamination, answers: Answers) -> list[Finding]:
    has_database = not any(each.check == "database" for each in database.findings)
    if not has_database:
        return _without_database(answers)
    try:
        agreement = agree(settings, database.chain, answers)
    except Misconfigured as error:
        return [fault("chain", error.message)]
    if agreement.unavailable is not None:
        sentence = (
            "No node answers, so that the contracts, the roles and the clock were not checked: "
            f"{agreement.unavailable}."
        )
        return [warning("node", sentence)]
    away = [
        warning("node", _away(name, answer))
        for name, answer in answers.items()
        if isinstance(answer, LtzdError)
    ]
    return [*away, ok("chain", f"The nodes are of chain {agreement.chain.chain_id}.")]


def _away(name: str, answer: LtzdError) -> str:
    """A node that is only unavailable now is used as soon as it answers."""
    is_late = isinstance(answer, NodeUnavailable)
    return f"The node {name} {'was not checked' if is_late else 'is left out'}: {answer.message}"


def _without_database(answers: Answers) -> list[Finding]:
    """The faults that do not depend on the chain that the database follows."""
    return [
        (fault if isinstance(answer, Misconfigured) else warning)("chain", answer.message)
        for answer in answers.values()
        if isinstance(answer, LtzdError)
    ]


def _first_of_the_chain(answers: Answers, chain_id: int | None) -> str | None:
    for name, answer in answers.items():
        if isinstance(answer, NodeChain) and chain_id in {None, answer.identity.chain_id}:
            return name
    return None


async def _first_block(settings: Settings, node: Node) -> list[Finding]:
    """A fault if LTZ existed before `contracts.first_block`, from where a new index begins.

    A node that does not keep such old states says nothing. Raises NodeUnavailable.
    """
    first = settings.contracts.first_block
    if first < 2:
        return []
    try:
        code = await node.code(settings.contracts.ltz, first - 1)
    except LtzdError:
        return []
    if not code:
        return []
    sentence = (
        f"contracts.first_block is {first}, but LTZ was deployed before that block, so that the "
        "index would miss its first transfers: set first_block to the block that `ltzd deploy` "
        "printed."
    )
    return [fault("contracts", sentence)]


async def _clock(node: Node, name: str, policy: ChainPolicy) -> Finding:
    """Raises NodeUnavailable."""
    first = await _newest(node)
    finding = clocks.judge_newest(first, name)
    if finding is not None:
        return finding
    numbers = range(max(0, first.number - 8), first.number + 1)
    headers = await asyncio.gather(*(node.block(number) for number in numbers))
    times = [header.timestamp for header in headers if header is not None]
    if await node.is_syncing():
        return warning("clock", f"The node {name} is syncing: the clock was not compared with it.")
    if not clocks.is_regular(times):
        sentence = (
            f"The newest block of the node {name} is {first.age:.0f} s old, but blocks do not come "
            "regularly: the clock was not compared with it."
        )
        return warning("clock", sentence)
    block_seconds = (times[-1] - times[0]) / (len(times) - 1)
    second, ends = first, time.monotonic() + min(policy.longest_wait, 3 * block_seconds + 2)
    while second.number == first.number and time.monotonic() < ends:
        await asyncio.sleep(min(1.0, block_seconds / 4))
        second = await _newest(node)
    return clocks.judge_second_reading(first, second, block_seconds, name)


async def _newest(node: Node) -> BlockSighting:
    head, _ = await node.head_and_final()
    return BlockSighting(head.number, head.timestamp, time.time())
