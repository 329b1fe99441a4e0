"""Reads what a rollup charges for the data that it posts to its L1.

An OP-stack chain has the contract GasPriceOracle (https://specs.optimism.io/protocol/predeploys.html),
Arbitrum the interface NodeInterface, which only nodes answer
(https://docs.arbitrum.io/build-decentralized-apps/nodeinterface/reference).

A node may lie about both: no wallet pays for data at an absurd price, and an Arbitrum transaction
whose gas limit leaves no gas for its data fails. So prices that are far from the last compared ones
are compared with those of other nodes (`second_opinions.py`).
"""

from enum import Enum
from functools import cache, partial
from typing import Final

import msgspec
import structlog

from ltzd.chain.contracts import abi_words
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.second_opinions import Question, compare_with_others
from ltzd.chain.node.views import ChainViews
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.l1_costs import (
    ENVELOPE_BYTES,
    NO_L1_COSTS,
    OPERATOR_FEE_SAMPLE,
    SAMPLE_BYTES,
    L1Costs,
    are_far_apart,
)
from ltzd.values import Address, keccak

log = structlog.get_logger()

GAS_PRICE_ORACLE: Final = Address(bytes.fromhex("420000000000000000000000000000000000000f"))
ARB_SYS: Final = Address(bytes(19) + b"\x64")
"""Arbitrum's precompiles show the one byte 0xfe as their code."""
NODE_INTERFACE: Final = Address(bytes(19) + b"\xc8")

_PRECOMPILE_CODE: Final = b"\xfe"
_FEE_UPPER_BOUND: Final = abi_words.selector("getL1FeeUpperBound(uint256)")
_FEE: Final = abi_words.selector("getL1Fee(bytes)")
_OPERATOR_FEE: Final = abi_words.selector("getOperatorFee(uint256)")
_L1_COMPONENT: Final = abi_words.selector("gasEstimateL1Component(address,bool,bytes)")

L1_COSTS = "l1_costs"
"""A node's prices of data are far from those of other nodes."""

_FRESH_SECONDS = 10.0
_COMPARED_FOR_SECONDS = 600.0


class Rollup(Enum):
    NONE = "none"
    OP_STACK = "op_stack"
    ARBITRUM = "arbitrum"


class L1CostReader:
    """Reads the prices every 10 s, and finds out once in ten minutes which rollup the chain is."""

    def __init__(self, node: Node, clock: Clock = loop_time) -> None:
        self._views = ChainViews(node, clock)
        self._clock = clock
        self._rollup = Rollup.NONE
        self._compared: L1Costs | None = None
        self._compared_at = float("-inf")
        self._costs: L1Costs | None = None
        self._read_at = float("-inf")

    async def read(self) -> L1Costs:
        """The prices, 10 s old at most, or older ones while the node does not answer.

        Raises NodeUnavailable if the node has never answered.
        """
        now = self._clock()
        if self._costs is not None and now - self._read_at < _FRESH_SECONDS:
            return self._costs
        try:
            costs = await self._read(now)
        except NodeUnavailable:
            if self._costs is None:
                raise
            return self._costs
        self._costs, self._read_at = costs, now
        return costs

    async def _read(self, now: float) -> L1Costs:
        if self._compared is not None and now - self._compared_at < _COMPARED_FOR_SECONDS:
            costs = await self._views.decide_at_head(partial(_costs, rollup=self._rollup))
            if not are_far_apart(costs, self._compared):
                return costs
        return await self._compare(now)

    async def _compare(self, now: float) -> L1Costs:
        testimony = await self._views.decide_at_head(_prevailing_testimony)
        if testimony.rollup not in (self._rollup, Rollup.NONE):
            log.info("chain.rollup", kind=testimony.rollup.value)
        self._rollup, self._compared, self._compared_at = testimony.rollup, testimony.costs, now
        return testimony.costs


class _Testimony(msgspec.Struct, frozen=True):
    """The answers of one node."""

    rollup: Rollup
    costs: L1Costs


async def _testimony(node: Node) -> _Testimony:
    rollup = await _probe(node)
    return _Testimony(rollup, await _costs(node, rollup))


async def _prevailing_testimony(node: Node) -> _Testimony:
    return (await compare_with_others(node, await _testimony(node), _QUESTION)).answer


_QUESTION: Question[_Testimony] = Question(
    ask=_testimony,
    leniency=lambda testimony: -testimony.costs.of_sample,
    contradict=lambda first, second: are_far_apart(first.costs, second.costs),
    kind=L1_COSTS,
)


async def _costs(node: Node, rollup: Rollup) -> L1Costs:
    """Zero for a rollup whose contract lacks the functions. Raises NodeUnavailable."""
    try:
        if rollup is Rollup.OP_STACK:
            return await _op_stack_costs(node)
        if rollup is Rollup.ARBITRUM:
            return await _arbitrum_costs(node)
    except (RpcError, ValueError) as error:
        if isinstance(error, RpcError) and "revert" not in error.message.lower():
            raise NodeUnavailable(f"The chain's L1 prices: {error.message}") from error
        log.warning("chain.l1_costs_unknown", kind=rollup.value, reason=str(error))
    return NO_L1_COSTS


async def _probe(node: Node) -> Rollup:
    if await node.code(ARB_SYS) == _PRECOMPILE_CODE:
        return Rollup.ARBITRUM
    return Rollup.OP_STACK if await node.code(GAS_PRICE_ORACLE) else Rollup.NONE


async def _op_stack_costs(node: Node) -> L1Costs:
    fees = await _l1_fees(node)
    operator_fees = await _operator_fees(node)
    return L1Costs(
        fee_without_data=fees[0],
        fee_of_sample=fees[1],
        operator_fee_without_gas=operator_fees[0],
        operator_fee_of_sample=operator_fees[1],
    )


async def _l1_fees(node: Node) -> list[int]:
    """The highest L1 fees of no data and of the sample. Raises RpcError, ValueError."""
    sizes = (ENVELOPE_BYTES, ENVELOPE_BYTES + SAMPLE_BYTES)
    try:
        return await _numbers(node, *(_FEE_UPPER_BOUND + _word(size) for size in sizes))
    except RpcError:
        # Before the upgrade Fjord the fee depends on the bytes alone, and zeros cost less.
        data = (_word(32) + abi_words.encode_bytes(b"\xff" * size) for size in sizes)
        return await _numbers(node, *(_FEE + each for each in data))


async def _operator_fees(node: Node) -> list[int]:
    """The operator fees without gas and of the sample; zero before the upgrade Isthmus."""
    gas = (0, OPERATOR_FEE_SAMPLE)
    try:
        return await _numbers(node, *(_OPERATOR_FEE + _word(each) for each in gas))
    except (RpcError, ValueError):
        return [0, 0]


async def _numbers(node: Node, *calls: bytes) -> list[int]:
    answers = await node.views([(GAS_PRICE_ORACLE, call) for call in calls])
    return [abi_words.WordReader(answer).uint() for answer in answers]


async def _arbitrum_costs(node: Node) -> L1Costs:
    target = abi_words.encode_address(NODE_INTERFACE) + _word(0) + _word(96)
    calls = [_L1_COMPONENT + target + abi_words.encode_bytes(data) for data in (b"", _sample())]
    answers = await node.views([(NODE_INTERFACE, call) for call in calls])
    gas = [abi_words.WordReader(answer).uint() for answer in answers]
    return L1Costs(gas_without_data=gas[0], gas_of_sample=gas[1])


@cache
def _sample() -> bytes:
    """Data as mints and relays have it: words with twenty bytes that no compression shortens."""
    words = SAMPLE_BYTES // 32
    return b"".join(bytes(12) + keccak(number.to_bytes(2, "big"))[:20] for number in range(words))


def _word(number: int) -> bytes:
    return number.to_bytes(32, "big")
