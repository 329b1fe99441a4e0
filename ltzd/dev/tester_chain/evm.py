"""py-evm below eth-tester: executes blocks and calls over one database of state.

eth-tester's backend makes genesis, the funded accounts and the database. Its own sending is not
used: it runs a transaction when it is sent and validates the block again when it is mined. Here
`build` runs each transaction once. The state after every block stays readable by its root, so
several threads may read while one builds.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

from coincurve import PrivateKey
from eth.abc import ComputationAPI
from eth.exceptions import Revert, VMError
from eth.vm.execution_context import ExecutionContext
from eth.vm.forks.cancun import CancunVM
from eth_tester.backends.pyevm.main import PyEVMBackend
from eth_utils.exceptions import ValidationError

from ltzd.dev.tester_chain.block import Block, Header
from ltzd.dev.tester_chain.filling import Built, Plan, build
from ltzd.dev.tester_chain.state import State
from ltzd.dev.tester_chain.transaction import Transaction, Unsigned
from ltzd.values import Address, Hash32

BLOCK_GAS_LIMIT = 60_000_000


@dataclass(frozen=True)
class Outcome:
    """What a call came to; `error` is None where it succeeded."""

    output: bytes
    gas_used: int
    gas_refunded: int
    error: str | None
    is_revert: bool


class Evm:
    def __init__(self, chain_id: int) -> None:
        self.chain_id = chain_id
        self.closing = Event()
        backend = _backend()
        self._db = backend.chain.chaindb.db
        self.genesis = Block(backend.chain.get_canonical_block_header_by_number(0), None)
        self.dev_keys: dict[Address, PrivateKey] = {
            Address(key.public_key.to_canonical_address()): PrivateKey(key.to_bytes())
            for key in backend.account_keys
        }

    def state_after(self, block: Block) -> State:
        """A state of its own for the caller."""
        return self._state(block.header, block)

    def build(self, plan: Plan) -> Built:
        return build(plan, partial(self._state, parent=plan.parent))

    def call(
        self, block: Block, said: Unsigned, sender: Address, next_timestamp: int | None
    ) -> Outcome:
        """Run and keep nothing, inside the block or one that follows it at `next_timestamp`.

        Fees are not charged, as in geth where none are named.
        """
        header = block.header.copy(base_fee_per_gas=0)
        if next_timestamp is not None:
            header = header.copy(block_number=block.number + 1, timestamp=next_timestamp)
        state = self._state(header, block)
        free = Transaction(
            type_id=2,
            chain_id=self.chain_id,
            nonce=state.nonce(sender),
            max_priority_fee_per_gas=0,
            max_fee_per_gas=0,
            gas=said.gas,
            to=said.to,
            value=said.value,
            data=said.data,
            access_list=said.access_list,
            sender=sender,
        )
        try:
            return _outcome(free, state.run(free))
        except (VMError, ValidationError) as error:
            return Outcome(b"", said.gas, 0, _error_text(error), is_revert=False)

    def decree(self, block: Block, change: Callable[[State], None]) -> Hash32:
        """The root of the state after `block` with a change that no transaction made."""
        state = self.state_after(block)
        change(state)
        state.persist()
        return state.root

    def _state(self, header: Header, parent: Block) -> State:
        """The state after `parent`, seen from a block that follows it or from itself."""
        ancestors = parent if parent.number < header.block_number else parent.parent
        context = ExecutionContext(
            coinbase=header.coinbase,
            timestamp=header.timestamp,
            block_number=header.block_number,
            difficulty=header.difficulty,
            mix_hash=header.mix_hash,
            gas_limit=header.gas_limit,
            prev_hashes=_hashes(ancestors),
            chain_id=self.chain_id,
            base_fee_per_gas=header.base_fee_per_gas,
            excess_blob_gas=0,
        )
        return State(self._db, context, parent.state_root, self.closing)


def _backend() -> Any:
    backend: Any = PyEVMBackend
    # Random, so that two dev chains never share a genesis hash.
    genesis = backend.generate_genesis_params(
        {"gas_limit": BLOCK_GAS_LIMIT, "extra_data": os.urandom(32)}
    )
    return backend(genesis_parameters=genesis, vm_configuration=((0, CancunVM),))


def _hashes(newest: Block | None) -> Any:
    return (one.hash for one in newest.back()) if newest else ()


def _outcome(said: Transaction, computation: ComputationAPI) -> Outcome:
    used = said.gas - computation.get_gas_remaining()
    if not computation.is_error:
        refund = min(computation.get_gas_refund(), used // 5)
        return Outcome(computation.output, used - refund, refund, None, is_revert=False)
    is_revert = isinstance(computation.error, Revert)
    text = "execution reverted" if is_revert else _error_text(computation.error)
    return Outcome(computation.output, used, 0, text, is_revert)


def _error_text(error: Exception) -> str:
    """geth's words where they are known; py-evm's class names say the same."""
    words = {"OutOfGas": "out of gas", "InvalidInstruction": "invalid opcode"}
    return words.get(type(error).__name__, f"{type(error).__name__}: {error}")
