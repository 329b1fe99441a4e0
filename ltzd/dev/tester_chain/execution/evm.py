"""Executes blocks and calls with py-evm over one state database.

eth-tester's backend creates genesis, the funded accounts and the database. Its own transaction
sending is not used: it executes a transaction when it is sent and the block again when it is mined.
Here `build` executes each transaction once. The state after every block stays readable by its root,
so several threads may read while one builds.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Any

import msgspec
from coincurve import PrivateKey
from eth.db.atomic import AtomicDB
from eth.db.batch import BatchDB
from eth.exceptions import OutOfGas, Revert, VMError
from eth.vm.execution_context import ExecutionContext
from eth.vm.forks.prague import PragueVM
from eth_tester.backends.pyevm.main import PyEVMBackend
from eth_utils.exceptions import ValidationError

from ltzd.dev.tester_chain.execution.block import Header, MinedBlock
from ltzd.dev.tester_chain.execution.block_builder import BlockPlan, BuiltBlock, build
from ltzd.dev.tester_chain.execution.overrides import NO_OVERRIDES, Overrides
from ltzd.dev.tester_chain.execution.proofs import AccountProof, account_proof
from ltzd.dev.tester_chain.execution.simulation import PlannedBlock, SimulatedBlock, simulate
from ltzd.dev.tester_chain.execution.state import EvmState, Execution, created_address
from ltzd.dev.tester_chain.execution.transaction import (
    AccessList,
    EvmTransaction,
    TransactionFields,
)
from ltzd.values import Address, Hash32

BLOCK_GAS_LIMIT = 60_000_000

_ERROR_TEXTS = {
    "OutOfGas": "out of gas",
    "InvalidInstruction": "invalid opcode",
    "InvalidJumpDestination": "invalid jump destination",
    "InsufficientStack": "stack underflow",
    "FullStack": "stack limit reached 1024",
    "OutOfBoundsRead": "return data out of bounds",
    "WriteProtection": "write protection",
    "ContractCreationCollision": "contract address collision",
    "InsufficientFunds": "insufficient balance for transfer",
    "StackDepthLimit": "max call depth exceeded",
}


class CallOutcome(msgspec.Struct, frozen=True):
    """The result of a call; `error` is None if it succeeded."""

    output: bytes
    gas_used: int
    gas_refunded: int
    error: str | None
    is_revert: bool
    accessed: AccessList = ()
    """Accounts and slots beyond the ones that every transaction accesses for free."""


class Evm:
    def __init__(self, chain_id: int) -> None:
        self.chain_id = chain_id
        self.closing = Event()
        backend = _backend()
        self._db = backend.chain.chaindb.db
        self.written: dict[Address, set[int]] = {}
        """Addresses and their slots that any state of this chain has written."""
        self.genesis = MinedBlock(backend.chain.get_canonical_block_header_by_number(0), None)
        self.dev_keys: dict[Address, PrivateKey] = {
            Address(key.public_key.to_canonical_address()): PrivateKey(key.to_bytes())
            for key in backend.account_keys
        }
        self.written.update((address, set()) for address in self.dev_keys)

    def state_after(self, block: MinedBlock) -> EvmState:
        """A new state object, which the caller owns."""
        return self._state(block.header, block)

    def build(self, plan: BlockPlan) -> BuiltBlock:
        return build(plan, partial(self._state, parent=plan.parent))

    def build_pending(self, plan: BlockPlan, begun: MinedBlock | None) -> MinedBlock:
        """A block whose state is in a layer over the database, released with the block.

        With `begun` the block has the transactions of that pending block before its own.
        """
        layer = AtomicDB(BatchDB(self._db)) if begun is None else begun.database
        state_for = partial(self._state, parent=begun or plan.parent, database=layer)
        block = build(plan, state_for, begun).block
        block.database = layer
        return block

    def call(
        self,
        block: MinedBlock,
        request: TransactionFields,
        sender: Address,
        overrides: Overrides = NO_OVERRIDES,
    ) -> CallOutcome:
        """Execute after the transactions of `block`, as part of it, without keeping changes.

        The sender pays the fees that the request names. Balance and fees have been checked.
        """
        header = overrides.changed(block.header)
        state = self._state(header, block)
        overrides.apply(state)
        message = EvmTransaction(
            type_id=request.type_id,
            chain_id=self.chain_id,
            nonce=state.nonce(sender),
            max_priority_fee_per_gas=request.max_priority_fee_per_gas,
            max_fee_per_gas=request.max_fee_per_gas,
            gas=request.gas,
            to=request.to,
            value=request.value,
            data=request.data,
            access_list=request.access_list,
            authorization_list=request.authorization_list,
            sender=sender,
        )
        try:
            execution = state.run(message)
            return outcome_of(execution, _accessed(message, state, header.coinbase))
        except (VMError, ValidationError) as error:
            return CallOutcome(b"", request.gas, 0, _error_text(error), is_revert=False)

    def simulate(self, parent: MinedBlock, planned: Sequence[PlannedBlock]) -> list[SimulatedBlock]:
        """Blocks after `parent` that are kept nowhere. Raises JsonRpcError."""
        layer = AtomicDB(BatchDB(self._database(parent)))
        return simulate(parent, planned, partial(self._state, database=layer), layer)

    def proof(self, block: MinedBlock, address: Address, slots: Sequence[int]) -> AccountProof:
        return account_proof(self._database(block), block.state_root, address, slots)

    def change_state(self, block: MinedBlock, change: Callable[[EvmState], None]) -> Hash32:
        """Apply a change to the state after `block`; returns the new root."""
        state = self.state_after(block)
        change(state)
        state.persist()
        return state.root

    def _database(self, block: MinedBlock) -> Any:
        return self._db if block.database is None else block.database

    def _state(self, header: Header, parent: MinedBlock, database: Any = None) -> EvmState:
        """The state after `parent`, as executed in `header`: a later block, or parent itself."""
        if database is None:
            database = self._database(parent)
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
        return EvmState(database, context, parent.state_root, self.closing, self.written)


def _backend() -> Any:
    backend: Any = PyEVMBackend
    # Random extra data gives every dev chain its own genesis hash.
    genesis = backend.generate_genesis_params(
        {"gas_limit": BLOCK_GAS_LIMIT, "extra_data": os.urandom(32)}
    )
    return backend(genesis_parameters=genesis, vm_configuration=((0, PragueVM),))


def _hashes(newest: MinedBlock | None) -> Any:
    return (block.hash for block in newest.ancestry()) if newest else ()


def _accessed(transaction: EvmTransaction, state: EvmState, coinbase: Address) -> AccessList:
    """Without accounts that are warm from the start, unless their storage is accessed."""
    to = transaction.to or created_address(transaction.sender, transaction.nonce)
    warm = {transaction.sender, to, coinbase, *state.precompiles}
    return tuple(
        (address, slots) for address, slots in state.accessed if slots or address not in warm
    )


def outcome_of(execution: Execution, accessed: AccessList = ()) -> CallOutcome:
    computation, used = execution.computation, execution.gas_used
    if not computation.is_error:
        refunded = execution.gas_refunded
        return CallOutcome(
            computation.output, used, refunded, None, is_revert=False, accessed=accessed
        )
    is_revert = isinstance(computation.error, Revert)
    text = "execution reverted" if is_revert else _error_text(computation.error)
    return CallOutcome(computation.output, used, 0, text, is_revert, accessed)


def _error_text(error: Exception) -> str:
    """geth's message where one is known, else py-evm's class name and message."""
    if isinstance(error, OutOfGas) and "size" in str(error):
        return "max code size exceeded"
    return _ERROR_TEXTS.get(type(error).__name__, f"{type(error).__name__}: {error}")
