"""Simulation of relays against a scripted node: gas limits, refusals, fees and reasons."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from ltzd.actions.relayer.simulation import RelaySimulator, SimulatedAt
from ltzd.chain.node.l1_costs import ARB_SYS, NODE_INTERFACE
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import (
    ClaimLimitReached,
    LtzdError,
    NodeUnavailable,
    TransactionFailed,
    ValidationFailed,
)
from ltzd.rules.operator.fees import GWEI, FeePolicy, Fees
from ltzd.rules.operator.sendable import intrinsic_gas
from ltzd.values import hex_of
from tests.support.chain.fake_node import FakeNode, a_revert_string, custom_error
from tests.support.chain.fake_pool import FakeNodePool, a_fake_pool
from tests.support.chain.scripted_node import NEVER, a_server, error, result
from tests.support.clocks import ManualClock
from tests.support.relays.lanes import PERKS, RELAYER, a_plan
from tests.support.relays.simulators import A_HEAD, SimulatorAtHead
from tests.support.rows.core import a_wallet

PLAN = a_plan(b"\x01\x02\x03\x04")
CAP = FeePolicy(cap=100 * GWEI, min_tip=GWEI)
HEAD = {
    "number": "0x10",
    "hash": hex_of(b"\x10" * 32),
    "parentHash": hex_of(b"\x0f" * 32),
    "timestamp": "0x6553f100",
    "logsBloom": "0x" + "00" * 256,
    "gasLimit": "0x1c9c380",
    "baseFeePerGas": hex(9 * GWEI),
}


def reverted(data: bytes) -> Callable[[Any], object]:
    def answer(request: Any) -> object:
        reply = error(request, "execution reverted", 3)
        reply["error"] = {**dict(reply["error"]), "data": hex_of(data)}  # type: ignore[call-overload]
        return reply

    return answer


def node_error(message: str) -> Callable[[Any], object]:
    return lambda request: error(request, message)


class Script:
    """A node whose answers, by method, are values or functions of the request."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "eth_estimateGas": hex(80_000),
            "eth_call": "0x",
            "eth_getCode": "0x",
            "eth_getBlockByNumber": HEAD,
            "eth_feeHistory": {"baseFeePerGas": [hex(9 * GWEI), hex(10 * GWEI)]},
            "eth_maxPriorityFeePerGas": hex(2 * GWEI),
        } | answers
        self.requests: list[tuple[str, Any]] = []

    def __call__(self, request: Any) -> object:
        if isinstance(request, list):
            return [self(each) for each in request]
        self.requests.append((request["method"], request["params"]))
        answer = self.answers[request["method"]]
        if answer is NEVER:
            return NEVER
        return answer(request) if callable(answer) else result(request, answer)

    def count(self, method: str) -> int:
        return [name for name, _ in self.requests].count(method)


@asynccontextmanager
async def simulator(
    script: Script, clock: Clock = loop_time, policy: FeePolicy = CAP
) -> AsyncIterator[SimulatorAtHead]:
    async with a_server(script, timeout_seconds=0.3) as rpc:
        yield SimulatorAtHead(Node(rpc), policy, clock)


async def refusal(script: Script, wanted: int | None = None) -> LtzdError:
    async with simulator(script) as relay_simulator:
        with pytest.raises(LtzdError) as refused:
            await relay_simulator.gas_limit(PLAN, RELAYER.address, wanted)
    return refused.value


async def gas_limit(script: Script, wanted: int | None = None) -> int:
    async with simulator(script) as relay_simulator:
        return await relay_simulator.gas_limit(PLAN, RELAYER.address, wanted)


# --- gas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needed", "limit"),
    [
        (84_000, 105_000),
        (54_000, 74_000),
        (21_064, 41_064),
        (900_000, 1_000_000),
        (1_000_000, 1_000_000),
    ],
)
async def test_a_call_is_sent_with_a_quarter_or_a_storage_slot_more_and_never_too_much(
    needed: int, limit: int
) -> None:
    script = Script(eth_estimateGas=hex(needed))
    assert await gas_limit(script) == limit
    ((method, (call, *_)),) = script.requests
    assert method == "eth_estimateGas"
    assert call == {
        "from": hex_of(RELAYER.address),
        "to": hex_of(PERKS),
        "data": hex_of(PLAN.data),
    }


async def test_a_call_above_the_maximum_gas_limit_is_refused_with_the_gas_it_needs() -> None:
    refused = await refusal(Script(eth_estimateGas=hex(1_000_001)))
    assert isinstance(refused, ValidationFailed)
    assert refused.details == {"maxGasLimit": 1_000_000, "neededGas": 1_000_001}


@pytest.mark.parametrize(
    "text",
    ["gas required exceeds allowance (3000)", "Out of gas: required", "EVM error OutOfGas"],
)
async def test_a_call_above_the_blocks_gas_limit_is_refused(text: str) -> None:
    refused = await refusal(Script(eth_estimateGas=node_error(text)))
    assert isinstance(refused, ValidationFailed)
    assert refused.details == {"maxGasLimit": 1_000_000}


async def test_a_requested_gas_limit_is_used_if_the_call_passes_with_it() -> None:
    script = Script(eth_estimateGas=node_error("never asked"))
    assert await gas_limit(script, wanted=90_001) == 90_001
    assert script.count("eth_estimateGas") == 0
    ((call, block),) = (params for method, params in script.requests if method == "eth_call")
    assert (call["gas"], block["blockHash"]) == (hex(90_001), hex_of(A_HEAD.hash))
    assert call["from"] == hex_of(RELAYER.address)


@pytest.mark.parametrize(
    "answer",
    [node_error("out of gas"), reverted(b""), reverted(custom_error("FailedInnerCall()"))],
    ids=["out of gas", "empty", "inner call"],
)
async def test_a_requested_gas_limit_that_is_too_low_is_refused_with_the_gas_needed(
    answer: Any,
) -> None:
    """A call that runs out of gas reverts with an arbitrary reason, so the estimate decides."""
    refused = await refusal(Script(eth_call=answer), wanted=30_000)
    assert isinstance(refused, ValidationFailed)
    assert refused.details == {"gasLimit": 30_000, "neededGas": 80_000}


@pytest.mark.parametrize("needed", [0, 20_000, 21_063])
async def test_an_estimate_below_the_cost_of_the_calldata_makes_the_chain_unavailable(
    needed: int,
) -> None:
    """No node accepts such a transaction, and it would block the lane's later nonces."""
    assert isinstance(await refusal(Script(eth_estimateGas=hex(needed))), NodeUnavailable)


@pytest.mark.parametrize("answer", [None, 7, "nonsense"])
async def test_a_malformed_answer_does_not_mean_that_a_call_passes(answer: Any) -> None:
    refused = await refusal(Script(eth_call=answer), wanted=90_000)
    assert isinstance(refused, NodeUnavailable)


TOKEN = a_wallet(0x17)
WITH_INNER_CALL = replace(PLAN, inner_call=(TOKEN, b"permit"))


def with_inner(inner_answer: object) -> Callable[[Any], object]:
    """Estimates the inner call with `inner_answer` and the outer call with 40,000 gas."""

    def answer(request: Any) -> object:
        if request["params"][0]["to"] != hex_of(TOKEN):
            return result(request, hex(40_000))
        return inner_answer(request) if callable(inner_answer) else result(request, inner_answer)

    return answer


async def test_a_call_that_catches_an_inner_calls_failure_has_gas_for_the_inner_call() -> None:
    async with simulator(Script(eth_estimateGas=with_inner(hex(80_000)))) as relay_simulator:
        assert await relay_simulator.gas_limit(WITH_INNER_CALL, RELAYER.address, None) == 100_000
        assert await relay_simulator.gas_limit(WITH_INNER_CALL, RELAYER.address, 100_000) == 100_000
        with pytest.raises(ValidationFailed) as refused:
            await relay_simulator.gas_limit(WITH_INNER_CALL, RELAYER.address, 99_999)
    assert refused.value.details == {"gasLimit": 99_999, "neededGas": 100_000}


async def test_a_failing_inner_call_is_refused_even_if_the_outer_call_passes() -> None:
    expired = reverted(custom_error("ERC2612ExpiredSignature(uint256)", 5))
    async with simulator(Script(eth_estimateGas=with_inner(expired))) as relay_simulator:
        for wanted in (None, 200_000):
            with pytest.raises(TransactionFailed, match="ERC2612ExpiredSignature"):
                await relay_simulator.gas_limit(WITH_INNER_CALL, RELAYER.address, wanted)


async def test_a_call_that_reverts_with_any_gas_is_refused_with_its_revert_reason() -> None:
    revert = reverted(a_revert_string("paused"))
    refused = await refusal(Script(eth_call=revert, eth_estimateGas=revert), wanted=30_000)
    assert isinstance(refused, TransactionFailed)


# --- rollups ----------------------------------------------------------------------------------

L1_GAS = 9_000


def on_arbitrum(own_gas: int, estimate: int, l1_gas: int = L1_GAS) -> Script:
    """A call that needs `own_gas`, beside the gas that the rollup takes for its data."""

    def code(request: Any) -> object:
        return result(request, "0xfe" if request["params"][0] == hex_of(ARB_SYS) else "0x")

    def call(request: Any) -> object:
        transaction = request["params"][0]
        if transaction["to"] == hex_of(NODE_INTERFACE):
            return result(request, hex_of(l1_gas.to_bytes(32, "big") + bytes(64)))
        is_enough = int(transaction["gas"], 16) >= own_gas
        return result(request, "0x") if is_enough else error(request, "out of gas")

    return Script(eth_getCode=code, eth_call=call, eth_estimateGas=hex(estimate))


async def test_a_relay_is_simulated_without_the_gas_that_a_rollup_takes_for_its_data() -> None:
    """Simulated with all of its gas the call would pass, and fail on the chain."""
    script = on_arbitrum(own_gas=80_000, estimate=89_000)
    assert await gas_limit(script, wanted=89_000) == 89_000
    refused = await refusal(on_arbitrum(own_gas=80_000, estimate=89_000), wanted=88_999)
    assert isinstance(refused, ValidationFailed)
    assert refused.details == {"gasLimit": 88_999, "neededGas": 98_000}


async def test_a_cached_estimate_does_not_hide_that_a_rollup_takes_more() -> None:
    script = on_arbitrum(own_gas=80_000, estimate=90_000)
    async with simulator(script) as relay_simulator:
        for _ in range(2):
            limit = await relay_simulator.gas_limit(PLAN, RELAYER.address, None)
            assert limit == 90_000 * 5 // 4
        assert script.count("eth_estimateGas") == 1
        script.answers["eth_call"] = on_arbitrum(82_000, 0).answers["eth_call"]
        script.answers["eth_estimateGas"] = hex(91_000)
        assert await relay_simulator.gas_limit(PLAN, RELAYER.address, None) == 91_000 * 5 // 4


@pytest.mark.parametrize("is_enough", [True, False])
async def test_a_cached_estimate_pays_for_the_call_beside_its_data_or_is_not_used(
    is_enough: bool,
) -> None:
    """Some nodes simulate a call even with less gas than any transaction costs."""
    script, clock = on_arbitrum(own_gas=0, estimate=90_000), ManualClock()
    async with simulator(script, clock) as relay_simulator:
        await relay_simulator.gas_limit(PLAN, RELAYER.address, None)
        left = intrinsic_gas(PLAN.data) if is_enough else intrinsic_gas(PLAN.data) - 1
        script.answers |= on_arbitrum(own_gas=0, estimate=0, l1_gas=90_000 - left).answers
        script.answers["eth_estimateGas"] = hex(200_000)
        clock.now += 60.0
        limit = await relay_simulator.gas_limit(PLAN, RELAYER.address, None)
    assert limit == (90_000 if is_enough else 200_000) * 5 // 4


# --- reasons ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (a_revert_string("sold out"), "sold out"),
        (custom_error("Panic(uint256)", 0x11), "Panic: arithmetic overflow or underflow"),
        (custom_error("ClaimsPaused()"), None),
        (b"", "reverted without a reason"),
        (b"\xde\xad\xbe\xef", "0xdeadbeef"),
        (b"\x01", "0x01"),
        (custom_error("Error(string)", "x")[:20], None),
    ],
    ids=["sentence", "panic", "custom", "empty", "unknown", "a byte", "cut off"],
)
async def test_a_call_that_would_revert_is_refused_with_its_reason(
    data: bytes, reason: str | None
) -> None:
    refused = await refusal(Script(eth_estimateGas=reverted(data)))
    assert isinstance(refused, TransactionFailed)
    shown_reason = str(refused.details["reason"])
    assert shown_reason == reason or (reason is None and shown_reason)
    assert refused.message == f"Transaction would fail: {shown_reason}"


async def test_custom_errors_are_shown_with_their_arguments() -> None:
    data = custom_error("ERC20InvalidReceiver(address)", "0x" + "11" * 20)
    refused = await refusal(Script(eth_estimateGas=reverted(data)))
    assert refused.details["reason"] == "ERC20InvalidReceiver(receiver: 0x" + "11" * 20 + ")"


async def test_the_contracts_claim_limit_error_is_mapped_to_claim_limit_reached() -> None:
    data = custom_error("ClaimLimitReached(uint256,uint256,uint256)", 7, 2, 2)
    refused = await refusal(Script(eth_estimateGas=reverted(data)))
    assert isinstance(refused, ClaimLimitReached)
    assert refused.details == {"collectionId": 7, "currentClaims": 2, "maxPerUser": 2}


async def test_a_claim_limit_error_without_its_arguments_is_an_ordinary_reason() -> None:
    data = custom_error("ClaimLimitReached(uint256,uint256,uint256)", 7, 2, 2)[:50]
    refused = await refusal(Script(eth_estimateGas=reverted(data)))
    assert isinstance(refused, TransactionFailed)
    assert "ClaimLimitReached" in str(refused.details["reason"])


@pytest.mark.parametrize(
    "answer",
    [node_error("missing trie node"), "0xnumber", None, NEVER, lambda _request: b"<html>"],
    ids=["its own error", "no number", "nothing", "no answer", "no JSON"],
)
@pytest.mark.parametrize("wanted", [None, 30_000])
async def test_a_node_failure_is_not_reported_as_a_revert(answer: Any, wanted: int | None) -> None:
    script = Script(eth_estimateGas=answer, eth_call=node_error("out of gas"))
    refused = await refusal(script, wanted)
    assert isinstance(refused, NodeUnavailable)


# --- why a mined call failed ------------------------------------------------------------------


async def failure_reason(script: Script) -> str:
    async with simulator(script) as relay_simulator:
        return await relay_simulator.failure_reason(PERKS, PLAN.data, RELAYER.address, 16)


async def test_the_reason_of_a_mined_failure_is_read_at_its_block() -> None:
    script = Script(eth_call=reverted(a_revert_string("sold out")))
    assert await failure_reason(script) == "sold out"
    assert [params[1] for _, params in script.requests] == ["0x10"]


@pytest.mark.parametrize(
    "first", ["0x", node_error("missing trie node")], ids=["passes", "unknown"]
)
async def test_a_reason_missing_at_the_block_is_read_at_the_parent_block(first: Any) -> None:
    def answer(request: Any) -> object:
        if request["params"][1] == "0xf":
            return reverted(a_revert_string("sold out"))(request)
        return first(request) if callable(first) else result(request, first)

    assert await failure_reason(Script(eth_call=answer)) == "sold out"


@pytest.mark.parametrize(
    "answer", ["0x", node_error("missing trie node"), NEVER], ids=["passes", "unknown", "no answer"]
)
async def test_an_unknown_reason_is_reported_as_reverted_on_chain(answer: Any) -> None:
    assert await failure_reason(Script(eth_call=answer)) == "reverted on chain"


# --- fees -------------------------------------------------------------------------------------


async def test_fees_equal_those_that_a_lane_would_sign() -> None:
    async with simulator(Script()) as relay_simulator:
        assert await relay_simulator.fees() == Fees(22 * GWEI, 2 * GWEI)


async def test_a_price_above_the_cap_is_refused_with_both_prices_in_gwei() -> None:
    script = Script(eth_feeHistory={"baseFeePerGas": [hex(1), hex(99 * GWEI + GWEI // 2)]})
    async with simulator(script) as relay_simulator:
        with pytest.raises(ValidationFailed) as refused:
            await relay_simulator.fees()
    assert refused.value.details == {"gasPriceGwei": 101.5, "maxGwei": 100.0}


async def test_the_gas_price_is_read_once_in_two_seconds_for_any_number_of_callers() -> None:
    script, clock = Script(), ManualClock()
    async with simulator(script, clock) as relay_simulator:
        await asyncio.gather(*[relay_simulator.fees() for _ in range(20)])
        await relay_simulator.fees()
        assert script.count("eth_feeHistory") == 1
        clock.now += 2.1
        await relay_simulator.fees()
        assert script.count("eth_feeHistory") == 2


async def test_a_cancelled_caller_does_not_cancel_the_fees_of_the_others() -> None:
    async with simulator(Script()) as relay_simulator:
        first, second = (
            asyncio.create_task(relay_simulator.fees()),
            asyncio.create_task(relay_simulator.fees()),
        )
        await asyncio.sleep(0)
        first.cancel()
        assert await second == Fees(22 * GWEI, 2 * GWEI)


async def test_a_failed_gas_price_request_is_repeated() -> None:
    script = Script(eth_getBlockByNumber=None)
    async with simulator(script) as relay_simulator:
        outcomes = await asyncio.gather(
            *[relay_simulator.fees() for _ in range(5)], return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {NodeUnavailable}
        script.answers["eth_getBlockByNumber"] = HEAD
        assert await relay_simulator.fees() == Fees(22 * GWEI, 2 * GWEI)


@pytest.mark.parametrize("count", [2, 3])
async def test_one_nodes_base_fee_above_the_cap_refuses_no_relay(count: int) -> None:
    nodes = [FakeNode() for _ in range(count)]
    nodes[0].base_fee = 1_000 * GWEI
    async with a_fake_pool(*nodes) as pool:
        pool.prefer(0)
        simulator = SimulatorAtHead(pool.node("http"), CAP)
        assert (await simulator.fees()).max_fee_per_gas == 2 * GWEI + CAP.min_tip
        for node in nodes:
            node.base_fee = 1_000 * GWEI
        with pytest.raises(ValidationFailed, match="above the limit"):
            await SimulatorAtHead(pool.node("http"), CAP).fees()


# --- several nodes -------------------------------------------------------------------------------


@pytest.mark.parametrize("requested", [None, 200_000])
async def test_a_call_that_one_of_three_nodes_refuses_is_sent_and_the_node_is_reported(
    requested: int | None,
) -> None:
    async with a_fake_pool(*_nodes(3, refusing=[0])) as pool:
        assert await _gas_limit(pool, requested) >= 21_000
        assert pool.contradictions() == [{"simulation"}, set(), set()]


@pytest.mark.parametrize("requested", [None, 200_000])
@pytest.mark.parametrize(
    ("count", "refusing", "contradictions"),
    [
        (3, [0, 1, 2], [set(), set(), set()]),
        (3, [0, 2], [set(), {"simulation"}, set()]),
        (2, [0], [{"simulation"}, {"simulation"}]),
        (1, [0], [set()]),
    ],
)
async def test_a_refusal_of_half_of_the_nodes_counts(
    requested: int | None, count: int, refusing: list[int], contradictions: list[set[str]]
) -> None:
    async with a_fake_pool(*_nodes(count, refusing)) as pool:
        with pytest.raises(TransactionFailed, match="another contract does not like it"):
            await _gas_limit(pool, requested)
        assert pool.contradictions() == contradictions


async def test_a_node_that_is_behind_does_not_overrule_a_refusal() -> None:
    first, second, third = _nodes(3, refusing=[0])
    second.lag = third.lag = 1
    async with a_fake_pool(first, second, third) as pool:
        with pytest.raises(TransactionFailed):
            await _gas_limit(pool, None)
        assert pool.contradictions() == [set(), set(), set()]


def _nodes(count: int, refusing: list[int]) -> list[FakeNode]:
    first = FakeNode()
    first.mine(3)
    nodes = [first, *(first.sibling() for _ in range(count - 1))]
    for position in refusing:
        nodes[position].fails = lambda _data: True
    return nodes


async def _gas_limit(pool: FakeNodePool, requested: int | None) -> int:
    node = pool.node("http")
    simulator = RelaySimulator(node, CAP)
    return await simulator.gas_limit(PLAN, RELAYER.address, requested, SimulatedAt(node.pinned()))
