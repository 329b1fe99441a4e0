"""The tester chain's fast paths have the same results as py-evm."""

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
