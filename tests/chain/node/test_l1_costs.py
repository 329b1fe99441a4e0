"""The costs of data on rollups are read from their own contracts, once in ten seconds."""

from typing import Any, cast

import pytest
from eth_abi.abi import decode, encode
from eth_hash.auto import keccak
from msgspec.structs import replace

from ltzd.chain.node.l1_costs import (
    ARB_SYS,
    GAS_PRICE_ORACLE,
    L1_COSTS,
    NODE_INTERFACE,
    L1CostReader,
)
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.l1_costs import ENVELOPE_BYTES, NO_L1_COSTS, SAMPLE_BYTES, L1Costs
from ltzd.values import bytes_of, hex_of
from tests.support.chain.chain_kinds import OpStackNode
from tests.support.chain.fake_pool import QUICK, a_fake_pool
from tests.support.chain.scripted_node import a_server, error, refusing, result
from tests.support.clocks import ManualClock

STEADY = replace(QUICK, hedge_after=10.0, pinned_timeout=10.0)
"""A pause of this process makes no node slow: the node in use stays until it is reported."""


def _selector(signature: str) -> bytes:
    return keccak(signature.encode())[:4]


class Chain:
    """A rollup with some of the functions that these contracts have had."""

    def __init__(self, code_at: dict[bytes, str], functions: dict[str, Any]) -> None:
        self.code_at = code_at
        self.functions = {_selector(name): answer for name, answer in functions.items()}
        self.is_down = False
        self.calls = self.probes = 0

    def __call__(self, request: Any) -> object:
        if isinstance(request, list):
            return [self(each) for each in request]
        if self.is_down:
            return error(request, "internal error")
        if request["method"] == "eth_getCode":
            self.probes += 1
            return result(request, self.code_at.get(bytes_of(request["params"][0]), "0x"))
        self.calls += 1
        data = bytes_of(request["params"][0]["data"])
        if data[:4] not in self.functions:
            return error(request, "execution reverted", 3)
        numbers = self.functions[data[:4]](data[4:])
        return result(request, hex_of(encode(["uint256"] * len(numbers), numbers)))


def _uint(data: bytes) -> int:
    return int.from_bytes(data, "big")


ORACLE = {bytes(GAS_PRICE_ORACLE): "0x6080"}
FJORD = {"getL1FeeUpperBound(uint256)": lambda data: [3 * _uint(data)]}
ISTHMUS = FJORD | {"getOperatorFee(uint256)": lambda data: [9 + _uint(data)]}
BEDROCK = {"getL1Fee(bytes)": lambda data: [5 * len(decode(["bytes"], data)[0])]}


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        (FJORD, L1Costs(3 * ENVELOPE_BYTES, 3 * (ENVELOPE_BYTES + SAMPLE_BYTES))),
        (BEDROCK, L1Costs(5 * ENVELOPE_BYTES, 5 * (ENVELOPE_BYTES + SAMPLE_BYTES))),
        (
            ISTHMUS,
            L1Costs(
                3 * ENVELOPE_BYTES,
                3 * (ENVELOPE_BYTES + SAMPLE_BYTES),
                operator_fee_without_gas=9,
                operator_fee_of_sample=1_000_009,
            ),
        ),
    ],
)
async def test_an_op_stack_chain_tells_the_fee_of_its_data_at_any_upgrade(
    functions: dict[str, Any], expected: L1Costs
) -> None:
    async with a_server(Chain(ORACLE, functions)) as rpc:
        assert await L1CostReader(Node(rpc)).read() == expected


async def test_arbitrum_tells_the_gas_of_its_data() -> None:
    def component(arguments: bytes) -> list[int]:
        _, is_creation, data = decode(["address", "bool", "bytes"], arguments)
        assert not is_creation
        return [1_000 + len(data), 10_000_000, 30 * 10**9]

    chain = Chain(
        {bytes(ARB_SYS): "0xfe"}, {"gasEstimateL1Component(address,bool,bytes)": component}
    )
    async with a_server(chain) as rpc:
        assert await L1CostReader(Node(rpc)).read() == L1Costs(
            gas_without_data=1_000, gas_of_sample=1_000 + SAMPLE_BYTES
        )
    assert NODE_INTERFACE[-1] == 0xC8


@pytest.mark.parametrize("code", ["0x", "0x60806040"])
async def test_another_chain_charges_nothing_for_data_and_is_asked_no_call(code: str) -> None:
    """Other chains may have a contract or a precompile of their own at Arbitrum's address."""
    chain = Chain({bytes(ARB_SYS): code}, {})
    async with a_server(chain) as rpc:
        assert await L1CostReader(Node(rpc)).read() == NO_L1_COSTS
    assert chain.calls == 0


async def test_prices_are_read_again_after_ten_seconds_and_old_ones_serve_meanwhile() -> None:
    clock = ManualClock()
    chain = Chain(ORACLE, dict(FJORD))
    async with a_server(chain) as rpc:
        reader = L1CostReader(Node(rpc), clock)
        first = await reader.read()
        calls = chain.calls
        clock.now += 9.9
        assert await reader.read() == first
        assert chain.calls == calls
        clock.now += 0.2
        chain.is_down = True
        assert await reader.read() == first
        chain.is_down = False
        probes = chain.probes
        clock.now += 10.0
        assert (await reader.read()) == first
        assert chain.probes == probes
        chain.functions[_selector("getL1FeeUpperBound(uint256)")] = lambda _data: [7]
        clock.now += 10.0
        assert (await reader.read()).fee_of_sample == 7


async def test_without_any_answer_nothing_is_assumed() -> None:
    async with a_server(refusing("internal error")) as rpc:
        with pytest.raises(NodeUnavailable):
            await L1CostReader(Node(rpc)).read()


async def test_an_oracle_without_these_functions_stops_no_wallet() -> None:
    """Some chains have a contract of their own there and charge for data in another way."""
    async with a_server(Chain(ORACLE, {})) as rpc:
        assert await L1CostReader(Node(rpc)).read() == NO_L1_COSTS


async def test_one_lying_node_of_three_sets_no_price_and_is_asked_last() -> None:
    nodes = _op_stack_nodes(3)
    async with a_fake_pool(*nodes, policy=STEADY) as pool:
        clock = ManualClock()
        reader = L1CostReader(pool.node(), clock)
        honest = await reader.read()
        for lie in (10**12, 0):
            nodes[0].l1_wei_per_byte = lie
            pool.prefer(0)
            clock.now += 10.0
            assert await reader.read() == honest
            assert pool.contradictions() == [{L1_COSTS}, set(), set()]
        assert pool.ranked("operator")[-1] is pool.members[0]


async def test_a_lie_before_the_first_honest_price_is_outvoted_too() -> None:
    nodes = _op_stack_nodes(3)
    nodes[0].l1_wei_per_byte = 0
    async with a_fake_pool(*nodes, policy=STEADY) as pool:
        read = await L1CostReader(pool.node()).read()
    assert read.fee_of_sample == nodes[1].l1_fee(ENVELOPE_BYTES + SAMPLE_BYTES + 68)


async def test_a_lie_that_grows_in_small_steps_is_compared_when_it_has_doubled() -> None:
    nodes = _op_stack_nodes(3)
    honest = nodes[1].l1_wei_per_byte
    async with a_fake_pool(*nodes, policy=STEADY) as pool:
        clock = ManualClock()
        reader = L1CostReader(pool.node(), clock)
        await reader.read()
        for step in range(20):
            nodes[0].l1_wei_per_byte = honest * 6**step // 5**step
            pool.prefer(0)
            clock.now += 10.0
            read = await reader.read()
            assert read.fee_of_sample <= 2 * nodes[1].l1_fee(ENVELOPE_BYTES + SAMPLE_BYTES + 68)


async def test_a_price_that_rises_at_all_nodes_is_believed() -> None:
    nodes = _op_stack_nodes(3)
    async with a_fake_pool(*nodes, policy=STEADY) as pool:
        clock = ManualClock()
        reader = L1CostReader(pool.node(), clock)
        before = await reader.read()
        for node in nodes:
            node.l1_wei_per_byte *= 50
        clock.now += 10.0
        assert (await reader.read()).fee_of_sample == 50 * before.fee_of_sample
        assert pool.contradictions() == [set(), set(), set()]


async def test_a_node_that_hides_the_rollup_does_not_hide_it_from_the_next_reading() -> None:
    """The kind of the chain is one node's word as well."""
    nodes = _op_stack_nodes(3)
    async with a_fake_pool(*nodes, policy=STEADY) as pool:
        nodes[0].hides_oracle = True
        clock = ManualClock()
        reader = L1CostReader(pool.node(), clock)
        honest = await reader.read()
        assert honest.fee_of_sample > 0
        pool.prefer(1)
        clock.now += 10.0
        assert await reader.read() == honest
        assert pool.contradictions() == [{L1_COSTS}, set(), set()]


async def test_of_two_nodes_neither_is_outvoted_and_the_lower_price_counts() -> None:
    nodes = _op_stack_nodes(2)
    async with a_fake_pool(*nodes, policy=STEADY) as pool:
        clock = ManualClock()
        reader = L1CostReader(pool.node(), clock)
        honest = await reader.read()
        nodes[0].l1_wei_per_byte = 10**12
        for _ in range(3):
            pool.prefer(0)
            clock.now += 10.0
            assert await reader.read() == honest


@pytest.mark.parametrize("text", ["no state", "out of order"])
async def test_a_node_that_answers_nothing_about_prices_is_passed_over(text: str) -> None:
    nodes = _op_stack_nodes(2)
    nodes[0].error_for_code = text
    async with a_fake_pool(*nodes, policy=STEADY) as pool:
        read = await L1CostReader(pool.node()).read()
    assert read.fee_of_sample == nodes[1].l1_fee(ENVELOPE_BYTES + SAMPLE_BYTES + 68)


class _OpStackNode(OpStackNode):
    hides_oracle = False
    error_for_code = ""

    def _code(self, address: str, tag: str) -> str:
        if self.error_for_code and address in {hex_of(ARB_SYS), hex_of(GAS_PRICE_ORACLE)}:
            raise RpcError(-32000, self.error_for_code)
        return "0x" if self.hides_oracle else super()._code(address, tag)


def _op_stack_nodes(count: int) -> list[_OpStackNode]:
    """Nodes of one chain; the first is in use."""
    first = _OpStackNode()
    others = [cast("_OpStackNode", first.sibling()) for _ in range(count - 1)]
    return [first, *others]
