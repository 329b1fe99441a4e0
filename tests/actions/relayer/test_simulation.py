"""Simulated relays against a node's wire answers: gas limit, refusals, fees and reasons."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from ltzd.actions.relayer.simulation import RelaySimulator
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
from ltzd.values import hex_of
from tests.support.chain.fake_node import a_sentence, custom_error
from tests.support.chain.scripted_node import NEVER, a_server, error, result
from tests.support.clocks import ManualClock
from tests.support.relays.lanes import PERKS, RELAYER, a_plan
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


def plainly(message: str) -> Callable[[Any], object]:
    return lambda request: error(request, message)


class Script:
    """A node whose answers, by method, are values or functions of what was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "eth_estimateGas": hex(80_000),
            "eth_call": "0x",
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
) -> AsyncIterator[RelaySimulator]:
    async with a_server(script, timeout_seconds=0.3) as rpc:
        yield RelaySimulator(Node(rpc), policy, clock)


async def refusal(script: Script, wanted: int | None = None) -> LtzdError:
    async with simulator(script) as it:
        with pytest.raises(LtzdError) as refused:
            await it.gas_limit(PLAN, RELAYER.address, wanted)
    return refused.value


async def gas_limit(script: Script, wanted: int | None = None) -> int:
    async with simulator(script) as it:
        return await it.gas_limit(PLAN, RELAYER.address, wanted)


# --- gas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needed", "limit"),
    [(80_000, 100_000), (21_064, 26_330), (900_000, 1_000_000), (1_000_000, 1_000_000)],
)
async def test_a_call_is_sent_with_a_quarter_more_than_it_needs_and_never_too_much(
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


async def test_what_needs_more_than_may_be_is_refused_with_the_number() -> None:
    refused = await refusal(Script(eth_estimateGas=hex(1_000_001)))
    assert isinstance(refused, ValidationFailed)
    assert refused.details == {"maxGasLimit": 1_000_000, "neededGas": 1_000_001}


@pytest.mark.parametrize(
    "text",
    ["gas required exceeds allowance (3000)", "Out of gas: required", "EVM error OutOfGas"],
)
async def test_what_needs_more_than_a_block_holds_is_refused_too(text: str) -> None:
    refused = await refusal(Script(eth_estimateGas=plainly(text)))
    assert isinstance(refused, ValidationFailed)
    assert refused.details == {"maxGasLimit": 1_000_000}


async def test_the_gas_asked_for_is_what_is_sent_if_the_call_passes_with_it() -> None:
    script = Script(eth_estimateGas=plainly("never asked"))
    assert await gas_limit(script, wanted=90_001) == 90_001
    ((method, (call, block)),) = script.requests
    assert (method, call["gas"], block) == ("eth_call", hex(90_001), "latest")
    assert call["from"] == hex_of(RELAYER.address)


@pytest.mark.parametrize(
    "answer",
    [plainly("out of gas"), reverted(b""), reverted(custom_error("FailedInnerCall()"))],
    ids=["out of gas", "empty", "inner call"],
)
async def test_too_little_gas_is_told_with_what_it_needs(answer: Any) -> None:
    """The reason of a call without gas says nothing: the estimate decides."""
    refused = await refusal(Script(eth_call=answer), wanted=30_000)
    assert isinstance(refused, ValidationFailed)
    assert refused.details == {"gasLimit": 30_000, "neededGas": 80_000}


@pytest.mark.parametrize("needed", [0, 20_000, 21_063])
async def test_an_estimate_below_what_the_data_costs_is_no_estimate(needed: int) -> None:
    """Bytes that no node takes would hold up everything behind them."""
    assert isinstance(await refusal(Script(eth_estimateGas=hex(needed))), NodeUnavailable)


@pytest.mark.parametrize("answer", [None, 7, "nonsense"])
async def test_an_answer_that_is_none_is_no_word_that_a_call_passes(answer: Any) -> None:
    refused = await refusal(Script(eth_call=answer), wanted=90_000)
    assert isinstance(refused, NodeUnavailable)


TOKEN = a_wallet(0x17)
SWALLOWING = replace(PLAN, inner_call=(TOKEN, b"permit"))


def inside(answer_inside: object) -> Callable[[Any], object]:
    """The estimate of the call inside is `said`, that of the one around it 40,000."""

    def answer(request: Any) -> object:
        if request["params"][0]["to"] != hex_of(TOKEN):
            return result(request, hex(40_000))
        return answer_inside(request) if callable(answer_inside) else result(request, answer_inside)

    return answer


async def test_a_call_that_swallows_another_has_gas_for_that() -> None:
    async with simulator(Script(eth_estimateGas=inside(hex(80_000)))) as it:
        assert await it.gas_limit(SWALLOWING, RELAYER.address, None) == 100_000
        assert await it.gas_limit(SWALLOWING, RELAYER.address, 100_000) == 100_000
        with pytest.raises(ValidationFailed) as refused:
            await it.gas_limit(SWALLOWING, RELAYER.address, 99_999)
    assert refused.value.details == {"gasLimit": 99_999, "neededGas": 100_000}


async def test_what_fails_inside_is_told_though_the_call_passes() -> None:
    expired = reverted(custom_error("ERC2612ExpiredSignature(uint256)", 5))
    async with simulator(Script(eth_estimateGas=inside(expired))) as it:
        for wanted in (None, 200_000):
            with pytest.raises(TransactionFailed, match="ERC2612ExpiredSignature"):
                await it.gas_limit(SWALLOWING, RELAYER.address, wanted)


async def test_what_would_revert_with_any_gas_is_no_matter_of_gas() -> None:
    revert = reverted(a_sentence("paused"))
    refused = await refusal(Script(eth_call=revert, eth_estimateGas=revert), wanted=30_000)
    assert isinstance(refused, TransactionFailed)


# --- reasons ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (a_sentence("sold out"), "sold out"),
        (custom_error("Panic(uint256)", 0x11), "Panic: arithmetic overflow or underflow"),
        (custom_error("ClaimsPaused()"), None),
        (b"", "reverted without a reason"),
        (b"\xde\xad\xbe\xef", "0xdeadbeef"),
        (b"\x01", "0x01"),
        (custom_error("Error(string)", "x")[:20], None),
    ],
    ids=["sentence", "panic", "custom", "empty", "unknown", "a byte", "cut off"],
)
async def test_what_would_revert_says_why(data: bytes, reason: str | None) -> None:
    refused = await refusal(Script(eth_estimateGas=reverted(data)))
    assert isinstance(refused, TransactionFailed)
    told_reason = str(refused.details["reason"])
    assert told_reason == reason or (reason is None and told_reason)
    assert refused.message == f"Transaction would fail: {told_reason}"


async def test_custom_errors_are_told_with_their_arguments() -> None:
    data = custom_error("ERC20InvalidReceiver(address)", "0x" + "11" * 20)
    refused = await refusal(Script(eth_estimateGas=reverted(data)))
    assert refused.details["reason"] == "ERC20InvalidReceiver(receiver: 0x" + "11" * 20 + ")"


async def test_the_contracts_claim_limit_is_ours() -> None:
    data = custom_error("ClaimLimitReached(uint256,uint256,uint256)", 7, 2, 2)
    refused = await refusal(Script(eth_estimateGas=reverted(data)))
    assert isinstance(refused, ClaimLimitReached)
    assert refused.details == {"collectionId": 7, "currentClaims": 2, "maxPerUser": 2}


async def test_a_claim_limit_without_its_numbers_is_a_reason_like_any_other() -> None:
    data = custom_error("ClaimLimitReached(uint256,uint256,uint256)", 7, 2, 2)[:50]
    refused = await refusal(Script(eth_estimateGas=reverted(data)))
    assert isinstance(refused, TransactionFailed)
    assert "ClaimLimitReached" in str(refused.details["reason"])


@pytest.mark.parametrize(
    "answer",
    [plainly("missing trie node"), "0xnumber", None, NEVER, lambda _request: b"<html>"],
    ids=["its own error", "no number", "nothing", "no answer", "no JSON"],
)
@pytest.mark.parametrize("wanted", [None, 30_000])
async def test_a_node_that_cannot_say_refuses_nobody(answer: Any, wanted: int | None) -> None:
    script = Script(eth_estimateGas=answer, eth_call=plainly("out of gas"))
    refused = await refusal(script, wanted)
    assert isinstance(refused, NodeUnavailable)


# --- why a mined call failed ------------------------------------------------------------------


async def why(script: Script) -> str:
    async with simulator(script) as it:
        return await it.failure_reason(PERKS, PLAN.data, RELAYER.address, 16)


async def test_the_reason_of_a_mined_failure_is_that_of_its_block() -> None:
    script = Script(eth_call=reverted(a_sentence("sold out")))
    assert await why(script) == "sold out"
    assert [params[1] for _, params in script.requests] == ["0x10"]


@pytest.mark.parametrize("first", ["0x", plainly("missing trie node")], ids=["passes", "unknown"])
async def test_where_its_block_does_not_tell_the_one_before_may(first: Any) -> None:
    def answer(request: Any) -> object:
        if request["params"][1] == "0xf":
            return reverted(a_sentence("sold out"))(request)
        return first(request) if callable(first) else result(request, first)

    assert await why(Script(eth_call=answer)) == "sold out"


@pytest.mark.parametrize(
    "answer", ["0x", plainly("missing trie node"), NEVER], ids=["passes", "unknown", "no answer"]
)
async def test_a_reason_that_nobody_knows_any_more_is_not_made_up(answer: Any) -> None:
    assert await why(Script(eth_call=answer)) == "reverted on chain"


# --- fees -------------------------------------------------------------------------------------


async def test_fees_are_those_that_a_lane_would_sign_at() -> None:
    async with simulator(Script()) as it:
        assert await it.fees() == Fees(22 * GWEI, 2 * GWEI)


async def test_over_the_cap_both_prices_are_told_in_gwei() -> None:
    script = Script(eth_feeHistory={"baseFeePerGas": [hex(1), hex(99 * GWEI + GWEI // 2)]})
    async with simulator(script) as it:
        with pytest.raises(ValidationFailed) as refused:
            await it.fees()
    assert refused.value.details == {"gasPriceGwei": 101.5, "maxGwei": 100.0}


async def test_the_market_is_asked_once_a_second_however_many_come() -> None:
    script, clock = Script(), ManualClock()
    async with simulator(script, clock) as it:
        await asyncio.gather(*[it.fees() for _ in range(20)])
        await it.fees()
        assert script.count("eth_feeHistory") == 1
        clock.now = 1.1
        await it.fees()
        assert script.count("eth_feeHistory") == 2


async def test_who_gives_up_takes_nobodys_fees_with_him() -> None:
    async with simulator(Script()) as it:
        first, second = asyncio.create_task(it.fees()), asyncio.create_task(it.fees())
        await asyncio.sleep(0)
        first.cancel()
        assert await second == Fees(22 * GWEI, 2 * GWEI)


async def test_a_node_that_does_not_know_its_market_is_asked_again() -> None:
    script = Script(eth_getBlockByNumber=None)
    async with simulator(script) as it:
        many = await asyncio.gather(*[it.fees() for _ in range(5)], return_exceptions=True)
        assert {type(each) for each in many} == {NodeUnavailable}
        script.answers["eth_getBlockByNumber"] = HEAD
        assert await it.fees() == Fees(22 * GWEI, 2 * GWEI)
