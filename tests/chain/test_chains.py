"""Lanes and indexer work on six kinds of chains, whose nodes speak as their clients do.

docs/chains.md tells which settings each chain wants, and what was assumed of it.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from msgspec import structs

from ltzd.chain.contracts import ltz
from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.deployment.cold_wallet import ColdWallet
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.operator.policy import FUNDS, LanePolicy
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.operator.requests import Action
from ltzd.rules.operator.sendable import TRANSACTION_GAS_CAP
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import requests
from ltzd.store.relayer import gas_budgets
from ltzd.values import Hash32
from tests.support.chain.chain_kinds import (
    CHAINS,
    ArbitrumNode,
    ChainNode,
    LegacyNode,
    OpStackNode,
    PolygonNode,
    served,
)
from tests.support.chain.chain_world import FINAL_BLOCKS, ChainWorld, a_chain_world
from tests.support.chain.fake_node import ETHER, FakeNode, SentTransaction, claim_logs
from tests.support.chain.mint_world import POLICY, observer, true
from tests.support.relays.lanes import PERKS, RELAYER, a_plan, a_relay, write
from tests.support.rows.core import a_wallet, pool, states, value
from tests.support.waiting import until

__all__ = ["observer", "pool"]

WITH_POOL = [name for name in CHAINS if name != "arbitrum"]
"""Chains whose transactions wait in a pool; Arbitrum's sequencer takes or refuses them."""

Open = Callable[[ChainNode], Any]


@pytest_asyncio.fixture
async def opened(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[Open]:
    """Returns a function that opens a world on a node."""
    yield lambda chain: a_chain_world(chain, database_url, pool, observer)


async def reach_finality(world: ChainWorld) -> None:
    world.chain.mine(FINAL_BLOCKS)


async def spent(world: ChainWorld) -> tuple[int, int]:
    """Returns the cost of relays by their rows, and by today's gas budget."""
    rows = await value(world.observer, "SELECT sum(gas_wei) FROM relays")
    async with session(world.observer) as connection:
        today = await gas_budgets.spent(connection, ["ann"])
    return int(rows), today.total_wei


async def relay_for_ann(world: ChainWorld, count: int) -> None:
    plans = [a_plan(bytes((7, number))) for number in range(count)]
    await write(world.observer, *(a_relay(plan, identity="ann") for plan in plans))
    world.wakeups.notify("ltzd_relays")


def distinct(sent: list[SentTransaction]) -> list[SentTransaction]:
    return list({each.hash: each for each in sent}.values())


# --- every chain ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHAINS)
async def test_rewards_and_relays_are_mined_once_and_become_final(opened: Open, name: str) -> None:
    async with opened(CHAINS[name]()) as world:
        chain = world.chain
        await world.queue(30)
        await relay_for_ann(world, 3)
        async with world.serving(world.policy()), world.relaying(world.policy()):
            await until(lambda: true(chain.mines_at_once or len(chain.pool) >= 4))
            chain.mine()
            await world.minted()
            await world.relays_are("mined", "mined", "mined")
            await reach_finality(world)

            async def is_final() -> bool:
                chain.mine()
                states = "SELECT count(*) FROM transactions WHERE state <> 'confirmed'"
                return bool(await value(world.observer, states) == 0)

            await until(is_final)
        assert chain.minted() == Counter(await world.references())
        assert sum(chain.executed().values()) == 3
        assert all(sent.is_legacy == (name == "legacy") for sent in chain.sent())
        assert all(sent.gas_limit <= TRANSACTION_GAS_CAP for sent in chain.sent())


@pytest.mark.parametrize("name", CHAINS)
async def test_the_bill_of_relays_is_what_the_chain_took(opened: Open, name: str) -> None:
    chain = CHAINS[name]()
    if isinstance(chain, OpStackNode):
        chain.operator_fee_scalar, chain.operator_fee_constant = 2_000_000, 77
    async with opened(chain) as world:
        async with world.relaying(world.policy()):
            await relay_for_ann(world, 3)
            await until(lambda: true(chain.mines_at_once or len(chain.pool) == 3))
            chain.mine()
            await world.relays_are("mined", "mined", "mined")
        assert await spent(world) == (chain.paid, chain.paid)


@pytest.mark.parametrize("name", WITH_POOL)
async def test_a_transaction_that_blocks_pass_over_is_replaced_by_a_dearer_one(
    opened: Open, name: str
) -> None:
    async with opened(CHAINS[name]()) as world:
        chain = world.chain
        policy = structs.replace(world.policy(POLICY), repeat_seconds=10.0)
        async with world.relaying(policy):
            await relay_for_ann(world, 1)
            await until(lambda: true(len(chain.pool) == 1))
            (first,) = distinct(chain.sent())

            async def is_replaced() -> bool:
                chain.mine(takes_pool=False)
                return len(distinct(chain.sent())) > 1

            await until(is_replaced)
            second = distinct(chain.sent())[1]
            chain.mine()
            await world.relays_are("mined")
        assert second.call == first.call
        assert second.is_legacy == first.is_legacy
        assert second.max_fee_per_gas * 10 >= first.max_fee_per_gas * 11
        assert second.tip * 10 >= first.tip * 11
        assert sum(chain.executed().values()) == 1


@pytest.mark.parametrize("name", CHAINS)
async def test_logs_that_a_node_omits_are_found_in_receipts_of_all_kinds(
    opened: Open, name: str
) -> None:
    """Receipts of deposits, internal and state-sync transactions stand beside them."""
    chain = CHAINS[name]()
    async with opened(chain) as world:
        chain.mine(2)
        chain.is_blind_by_hash = True
        chain.empty_answers = 1_000
        chain.mine(logs=claim_logs(a_wallet(5), 1 << 32 | 1))
        tokens = "SELECT count(*) FROM tokens"
        await until(lambda: value(world.observer, tokens))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("no_final", ["unknown block", None])
async def test_without_finalized_a_block_is_final_by_depth_and_time(
    opened: Open, name: str, no_final: str | None
) -> None:
    chain = CHAINS[name]()
    chain.final_depth, chain.no_final = None, no_final
    async with opened(chain) as world:

        async def is_final() -> bool:
            chain.mine()
            final = await value(world.observer, "SELECT final_number FROM chains")
            assert final <= max(0, chain.head.number - FINAL_BLOCKS)
            return bool(final > FINAL_BLOCKS)

        await until(is_final)


@pytest.mark.parametrize("name", CHAINS)
async def test_a_foreign_use_of_a_nonce_is_proven_among_the_chains_own_transactions(
    opened: Open, name: str
) -> None:
    async with opened(CHAINS[name]()) as world:
        chain = world.chain
        chain.lost_requests = 1_000_000
        await relay_for_ann(world, 1)
        async with world.relaying(world.policy(POLICY)):
            await world.settled("signed")
            foreign = chain.use_nonce(RELAYER)
            chain.lost_requests = 0

            async def is_displaced() -> bool:
                chain.mine(takes_pool=False)
                return await states(world.observer) == ["displaced"]

            await until(is_displaced)
        assert foreign.is_legacy == (name == "legacy")
        assert await spent(world) == (0, 0)


@pytest.mark.parametrize("name", CHAINS)
async def test_a_command_sends_a_cold_wallets_call_on_every_chain(name: str) -> None:
    chain = CHAINS[name]()
    chain.mine()
    chain.mines_at_once = True
    hashes: list[Hash32] = []
    async with served(chain) as rpc:
        wallet = ColdWallet(
            AgreeingNodes.of_one(rpc), RELAYER, FeePolicy(min_tip=max(GWEI, chain.least_tip))
        )
        confirmed = await wallet.send(PERKS, b"\x01", hashes.append)
    (sent,) = chain.sent()
    assert hashes == [confirmed.hash] == [sent.hash]
    assert sent.is_legacy == (name == "legacy")


# --- fees -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suggested", [GWEI, 30 * GWEI])
async def test_polygon_takes_no_less_than_the_floor_for_tips(opened: Open, suggested: int) -> None:
    chain = PolygonNode()
    chain.tip = suggested
    async with opened(chain) as world, world.relaying(world.policy()):
        await relay_for_ann(world, 1)
        await until(lambda: true(len(chain.pool) == 1))
        assert {sent.tip for sent in chain.sent()} == {max(suggested, 25 * GWEI)}


async def test_a_chain_without_tips_may_have_a_floor_of_zero(opened: Open) -> None:
    chain = ArbitrumNode()
    async with opened(chain) as world:
        policy = structs.replace(world.policy(), fees=FeePolicy(min_tip=0))
        async with world.relaying(policy):
            await relay_for_ann(world, 1)
            await world.relays_are("mined")
    (sent,) = distinct(chain.sent())
    assert (sent.tip, sent.max_fee_per_gas) == (0, 2 * chain.base_fee)


async def is_sent_after(chain: ChainNode, before: int) -> bool:
    return len(distinct(chain.sent())) > before


@pytest.mark.parametrize("name", WITH_POOL)
async def test_a_person_speeds_up_a_relay_and_cancels_it(opened: Open, name: str) -> None:
    async with opened(CHAINS[name]()) as world:
        chain = world.chain
        async with world.relaying(world.policy()):
            await relay_for_ann(world, 1)
            await until(lambda: true(len(chain.pool) == 1))
            for action in Action:
                before = len(distinct(chain.sent()))
                async with transaction(world.observer) as connection:
                    tx = await connection.fetchval("SELECT id FROM transactions")
                    await requests.ask(connection, tx, action, expires_in_seconds=None)
                world.wakeups.notify("ltzd_wallets")
                await until(partial(is_sent_after, chain, before))
            first, second, last = distinct(chain.sent())
            assert second.call == first.call
            assert second.max_fee_per_gas * 10 >= first.max_fee_per_gas * 11
            assert last.max_fee_per_gas * 10 >= second.max_fee_per_gas * 11
            assert last.is_self_transfer
            assert list(chain.pool) == [last.hash]
        assert all(sent.is_legacy == (name == "legacy") for sent in chain.sent())


async def test_a_legacy_price_above_the_cap_waits_and_one_below_it_is_paid(opened: Open) -> None:
    chain = LegacyNode()
    chain.tip = 101 * GWEI
    async with opened(chain) as world, world.relay_lane(world.policy()) as lane:
        await relay_for_ann(world, 1)
        await until(lambda: true(lane.pause.reason == "fees"))
        assert chain.arrived == []
        chain.tip = 99 * GWEI
        await until(lambda: true(len(chain.pool) == 1))
        assert {sent.max_fee_per_gas for sent in chain.sent()} == {99 * GWEI}


async def test_one_nodes_absurd_tip_stops_no_lane_while_another_node_is_honest(
    opened: Open,
) -> None:
    chain = ChainNode()
    chain.tip = 10**21
    async with opened(chain) as world:
        honest = FakeNode()
        honest.blocks = chain.blocks
        chain.node = _WithOther(chain.node, honest.node)
        async with world.relaying(world.policy()):
            await relay_for_ann(world, 1)
            await until(lambda: true(len(chain.pool) == 1))
    assert {sent.tip for sent in chain.sent()} == {honest.tip}


class _WithOther(Node):
    """A pool's client whose pinned node is the first, and that knows one more node."""

    def __init__(self, first: Node, other: Node) -> None:
        super().__init__(first._rpc)
        self._other = other

    def pinned(self) -> Node:
        return self

    async def newest(self) -> tuple[Node, Header]:
        _, head = await super().newest()
        return self, head

    def others(self, min_height: int = 0) -> list[Node]:
        return [self._other]


# --- rollups ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_before_fjord", [False, True])
async def test_an_op_stack_wallet_signs_only_what_it_can_pay_with_the_l1_fee(
    opened: Open, is_before_fjord: bool
) -> None:
    chain = OpStackNode()
    chain.is_before_fjord = is_before_fjord
    chain.l1_wei_per_byte = 10**12
    gas_wei = 100_000 * (2 * chain.base_fee + GWEI // 10)
    l1_wei = chain.l1_fee(300)
    assert l1_wei > gas_wei, "the L1 fee is the larger part"
    chain.balance = gas_wei + l1_wei
    async with opened(chain) as world, world.relay_lane(world.policy()) as lane:
        await relay_for_ann(world, 1)
        await until(lambda: true(lane.pause.reason == FUNDS))
        assert chain.arrived == []
        chain.balance = gas_wei + 2 * l1_wei + ETHER // 1_000
        await until(lambda: true(len(chain.pool) == 1))
        chain.mine()
        await world.relays_are("mined")
    assert len(chain.arrived) == 1, "no bytes were refused for want of funds"


async def test_an_op_stack_wallet_reserves_the_l1_fee_of_everything_in_flight(
    opened: Open,
) -> None:
    """Each of many relays could be paid alone; those in flight together can be paid, too."""
    chain = OpStackNode()
    chain.l1_wei_per_byte = 10**12
    each = 100_000 * (2 * chain.base_fee + GWEI // 10) + 2 * chain.l1_fee(300)
    chain.balance = 5 * each
    async with opened(chain) as world, world.relay_lane(world.policy()) as lane:
        await relay_for_ann(world, 20)
        await until(lambda: true(lane.pause.reason == FUNDS))
        await until(lambda: true(len(chain.pool) >= 3))
        await world.some_polls()
        assert len(chain.pool) <= 5
        most = sum(
            sent.gas_limit * sent.max_fee_per_gas + 2 * chain.fee_beside_gas(sent)
            for sent in chain.sent()
        )
        assert most <= chain.balance


@pytest.mark.parametrize("l1_gas_per_byte", [4, 40, 400, 1_000])
async def test_arbitrums_gas_for_data_is_in_the_limits_of_mints(
    opened: Open, l1_gas_per_byte: int
) -> None:
    """The node fails on a limit that does not hold the gas, also if the price rises by half."""
    chain = ArbitrumNode()
    chain.l1_gas_per_byte = l1_gas_per_byte
    async with opened(chain) as world, world.serving(_hasty(world.policy())):
        await world.some_polls()
        chain.l1_gas_per_byte = l1_gas_per_byte * 3 // 2
        await world.queue(120)
        await world.minted()
        await world.each_minted_once()
    limits = [sent.gas_limit for sent in chain.sent()]
    assert max(limits) <= TRANSACTION_GAS_CAP
    assert all(sent.gas_limit > ltz.mint_gas_limit(1) for sent in chain.sent())


def _hasty(policy: LanePolicy) -> LanePolicy:
    return structs.replace(policy, linger_seconds=0.05)


async def test_arbitrums_self_transfer_holds_the_gas_for_its_data(opened: Open) -> None:
    """A relay that the sequencer refuses for good gives its nonce to a self-transfer."""
    chain = ArbitrumNode()
    chain.refuses = lambda sent: not sent.is_self_transfer and "transaction filtered: sanction"
    async with opened(chain) as world, world.relaying(world.policy(POLICY)):
        await relay_for_ann(world, 1)
        await until(lambda: true(len(chain.self_transfers()) == 1))
    (freed,) = chain.self_transfers()
    assert freed.gas_limit >= 21_000 + chain.l1_gas(b"")


async def test_the_formula_for_mints_grows_where_a_mint_needs_more(opened: Open) -> None:
    chain = _DearNode()
    async with opened(chain) as world, world.serving(world.policy()):
        await world.queue(2)
        await until(lambda: true(len(chain.pool) == 1))
        (sent,) = distinct(chain.sent())
    assert sent.gas_limit == ltz.mint_gas_limit(2) * 4


class _DearNode(ChainNode):
    """A chain whose gas schedule makes a mint need 600,000 gas."""

    def _estimate_gas(self, call: dict[str, str], tag: Any = "latest") -> str:
        super()._estimate_gas(call, tag)
        return hex(600_000)
