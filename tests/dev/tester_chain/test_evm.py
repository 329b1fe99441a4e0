"""The tester chain's fast paths give py-evm's results, and its calls give anvil's."""

import os
from typing import Any

import pytest
from eth.abc import ComputationAPI
from eth.db.trie import make_trie_root_and_nodes
from eth.vm.forks.prague.computation import PragueComputation
from eth.vm.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from ltzd.dev.tester_chain.execution.computation import QuickComputation
from ltzd.dev.tester_chain.execution.evm import Evm
from ltzd.dev.tester_chain.execution.ordered_trie import ordered_root
from ltzd.values import hex_of
from tests.support.chain.either_chain import BothChains

SENDER, CONTRACT = b"\x01" * 20, b"\x02" * 20


class _Item:
    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def encode(self) -> bytes:
        return self._encoded


@pytest.mark.parametrize("count", [0, 1, 2, 16, 17, 127, 128, 129, 257, 400])
def test_the_ordered_root_is_the_tries(count: int) -> None:
    items = [os.urandom(1 + index * 7 % 300) for index in range(count)]
    wanted, _ = make_trie_root_and_nodes([_Item(item) for item in items])  # type: ignore[arg-type]
    assert bytes(ordered_root(items)) == bytes(wanted)


EVM = Evm(chain_id=1)

# Pushes, duplicates, swaps and pops most of all, with jumps and memory to make them matter.
_STEPS = st.one_of(
    st.integers(0x60, 0x7F).flatmap(
        lambda code: st.binary(min_size=code - 0x5F, max_size=code - 0x5F).map(
            lambda argument: bytes((code,)) + argument
        )
    ),
    st.integers(0x80, 0x9F).map(lambda code: bytes((code,))),
    st.sampled_from([b"\x50", b"\x01", b"\x03", b"\x16", b"\x35", b"\x5b", b"\x5f", b"\x15"]),
    st.sampled_from([b"\x60\x00\x52", b"\x60\x20\x51", b"\x60\x03\x56", b"\x60\x00\x55"]),
    st.binary(min_size=1, max_size=2),
)


@pytest.mark.filterwarnings("ignore:SELFDESTRUCT opcode present:DeprecationWarning")
@settings(max_examples=150, deadline=None)
@given(st.lists(_STEPS, max_size=40).map(b"".join), st.integers(0, 30_000))
def test_any_code_ends_as_in_py_evm_with_the_same_gas(code: bytes, gas: int) -> None:
    assert _ending(QuickComputation, code, gas) == _ending(PragueComputation, code, gas)


# Without values of the block, which differ between the chains, without jumps, and without the
# precompile MODEXP and the opcode CLZ, where anvil follows Osaka.
_ANY_OPCODE = st.sampled_from(
    sorted(set(range(0x100)) - {0x1E, 0x56, 0x57, 0x5A} - set(range(0x40, 0x4B)))
).map(lambda code: bytes((code,)))
_SMALL_NUMBER = st.integers(0, 255).map(lambda number: bytes((0x60, number)))
_ON_MEMORY = st.sampled_from(
    [b"\x60\x00\x52", b"\x60\x20\x51", b"\x60\x20\x60\x00\x20", b"\x60\x00\x55", b"\x60\x00\x5d"]
)
_PRECOMPILE_CALL = st.builds(
    lambda address, words: bytes.fromhex(
        f"6020600061{32 * words:04x}600061{address:04x}620f4240fa"
    ),
    st.sampled_from([address for address in range(1, 0x12) if address != 5]),
    st.integers(0, 12),
)
# Ends with an answer of the gas that is left.
_CODE = st.builds(
    lambda zeros, steps: b"\x5f" * zeros + b"".join(steps) + bytes.fromhex("5a5f5260205ff3"),
    st.integers(0, 16),
    st.lists(
        st.one_of(_ANY_OPCODE, _SMALL_NUMBER, _ON_MEMORY, _PRECOMPILE_CALL),
        min_size=1,
        max_size=10,
    ),
)


@pytest.mark.filterwarnings("ignore:SELFDESTRUCT opcode present:DeprecationWarning")
@settings(max_examples=40, deadline=None)
@given(st.lists(_CODE, min_size=10, max_size=10))
async def test_any_code_ends_as_in_anvil_with_the_same_gas(
    both_chains: BothChains, codes: list[bytes]
) -> None:
    tester, anvil = await both_chains.of("tester"), await both_chains.of("anvil")
    sender = "0x" + "77" * 20
    for node in (tester, anvil):
        # The coinbase, which other tests have paid.
        await node("anvil_setBalance", "0x" + "00" * 20, "0x1")
    calls = [{"from": sender, "data": hex_of(code), "gas": hex(2_000_000)} for code in codes]
    batch = [
        {"jsonrpc": "2.0", "id": index, "method": "eth_call", "params": [call, "latest"]}
        for index, call in enumerate(calls)
    ]
    endings = [
        {reply["id"]: reply.get("result") for reply in await node.post(batch)}
        for node in (tester, anvil)
    ]
    assert endings[0] == endings[1]


def test_the_stack_has_1024_places_as_in_py_evm() -> None:
    loop = b"\x5b\x60\x01\x60\x00\x56"
    doubling = b"\x5b\x60\x01\x80\x60\x00\x56"
    for code in (loop, doubling):
        assert _ending(QuickComputation, code, 100_000) == (
            _ending(PragueComputation, code, 100_000)
        )


def _ending(kind: type[PragueComputation], code: bytes, gas: int) -> tuple[Any, ...]:
    state: Any = EVM.state_after(EVM.genesis)._inner
    message = Message(gas=gas, to=CONTRACT, sender=SENDER, value=0, data=b"\x07" * 40, code=code)  # type: ignore[arg-type]
    context = state.get_transaction_context_class()(gas_price=1, origin=SENDER)
    computation: ComputationAPI = kind.apply_message(state, message, context)
    error = type(computation.error).__name__ if computation.is_error else None
    return (
        error,
        computation.output,
        computation.get_gas_remaining(),
        computation.get_log_entries(),
        state.make_state_root(),
    )
