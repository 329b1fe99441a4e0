"""The state after a block, read and written by address: py-evm's state with types.

A state object belongs to one thread. Nothing reaches the database before `persist`.
"""

from collections.abc import Collection
from threading import Event
from typing import Any, cast

import msgspec
from eth._utils.address import generate_contract_address
from eth.abc import ComputationAPI, MessageAPI
from eth.vm.forks.prague.state import PragueState, PragueTransactionExecutor
from eth.vm.message import Message

from ltzd.dev.tester_chain.execution.computation import QuickComputation
from ltzd.dev.tester_chain.execution.transaction import AccessList, EvmTransaction
from ltzd.values import Address, Hash32

_NO_ADDRESS: Any = None
# EIP-3529: at most a fifth of the gas is refunded.
_REFUND_SHARE = 5


class _Executor(PragueTransactionExecutor):
    """py-evm's executor without its second signature check and its log texts per message."""

    def validate_transaction(self, transaction: Any) -> None:
        """Checks nothing: decoding checked the signature, and the block builder checks the rest."""

    def build_evm_message(self, transaction: Any) -> MessageAPI:
        state, sender = self.vm_state, transaction.sender
        state.delta_balance(sender, -transaction.gas * state.get_gas_price(transaction))
        state.increment_nonce(sender)
        refund = self.calc_message_refund(transaction)
        creates = not transaction.to
        code, delegate = (
            (transaction.data, None) if creates else self.get_code_at_address(transaction.to)
        )
        return Message(
            gas=transaction.gas - transaction.intrinsic_gas,
            to=transaction.to,
            sender=sender,
            value=transaction.value,
            data=b"" if creates else transaction.data,
            code=code,
            create_address=(
                generate_contract_address(sender, transaction.nonce) if creates else _NO_ADDRESS
            ),
            refund=refund,
            is_delegation=delegate is not None,
        )

    @staticmethod
    def calc_data_floor_gas(transaction: Any, gas_used: int, gas_refund: int) -> int:
        """The gas by which the floor exceeds what the execution costs."""
        return max(0, int(transaction.floor_gas) - (gas_used - gas_refund))


class _State(PragueState):
    computation_class = QuickComputation
    transaction_executor_class = _Executor

    closing: Event
    written: dict[Address, set[int]]
    accessed: dict[Address, set[int]]

    def set_balance(self, address: Any, balance: int) -> None:
        self.written.setdefault(address, set())
        super().set_balance(address, balance)

    def increment_nonce(self, address: Any) -> None:
        self.written.setdefault(address, set())
        super().increment_nonce(address)

    def set_nonce(self, address: Any, nonce: int) -> None:
        self.written.setdefault(address, set())
        super().set_nonce(address, nonce)

    def set_code(self, address: Any, code: bytes) -> None:
        self.written.setdefault(address, set())
        super().set_code(address, code)

    def set_storage(self, address: Any, slot: int, value: int) -> None:
        self.written.setdefault(address, set()).add(slot)
        super().set_storage(address, slot, value)

    def mark_address_warm(self, address: Any) -> None:
        self.accessed.setdefault(address, set())
        super().mark_address_warm(address)

    def mark_storage_warm(self, address: Any, slot: int) -> None:
        self.accessed.setdefault(address, set()).add(slot)
        super().mark_storage_warm(address, slot)

    def get_tip(self, transaction: Any) -> int:
        """Nothing for a call without a price, which py-evm would make the coinbase pay for."""
        return max(0, super().get_tip(transaction))

    def set_system_contracts(self) -> None:
        """Installs nothing: a dev chain has no beacon chain whose roots a contract would store."""


class Execution(msgspec.Struct, frozen=True):
    computation: ComputationAPI
    gas_used: int
    """The gas that the sender pays for: less the refund, at least the data's floor (EIP-7623)."""
    gas_refunded: int


class EvmState:
    def __init__(
        self,
        database: Any,
        context: Any,
        root: Hash32,
        closing: Event,
        written: dict[Address, set[int]],
    ) -> None:
        """Once `closing` is set, `run` may raise ChainClosedError.

        Adds each address and slot that it writes to `written`.
        """
        self._inner: Any = _State(database, context, root)  # type: ignore[arg-type]
        self._inner.closing = closing
        self._inner.written = written
        self._inner.accessed = {}

    @property
    def root(self) -> Hash32:
        return Hash32(self._inner.state_root)

    @property
    def precompiles(self) -> Collection[Address]:
        return cast("Collection[Address]", self._inner.computation_class.get_precompiles())

    @property
    def accessed(self) -> AccessList:
        """The accounts and slots that all runs so far have accessed, also in reverted calls."""
        return tuple(
            (address, tuple(sorted(slots))) for address, slots in self._inner.accessed.items()
        )

    def nonce(self, address: Address) -> int:
        return int(self._inner.get_nonce(address))

    def balance(self, address: Address) -> int:
        return int(self._inner.get_balance(address))

    def code(self, address: Address) -> bytes:
        return bytes(self._inner.get_code(address))

    def storage(self, address: Address, slot: int) -> int:
        return int(self._inner.get_storage(address, slot))

    def set_nonce(self, address: Address, nonce: int) -> None:
        self._inner.set_nonce(address, nonce)

    def set_balance(self, address: Address, balance: int) -> None:
        self._inner.set_balance(address, balance)

    def set_code(self, address: Address, code: bytes) -> None:
        self._inner.set_code(address, code)

    def set_storage(self, address: Address, slot: int, value: int) -> None:
        self._inner.set_storage(address, slot, value)

    def clear_storage(self, address: Address) -> None:
        self._inner.delete_storage(address)

    def run(self, transaction: EvmTransaction) -> Execution:
        """Execute a transaction and charge its gas; earlier changes can no longer be reverted."""
        self._inner.lock_changes()
        computation: ComputationAPI = self._inner.apply_transaction(transaction)
        spent = transaction.gas - computation.get_gas_remaining()
        refund = min(computation.get_gas_refund(), spent // _REFUND_SHARE)
        return Execution(computation, max(spent - refund, transaction.floor_gas), refund)

    def persist(self) -> None:
        self._inner.persist()


def created_address(sender: Address, nonce: int) -> Address:
    return Address(generate_contract_address(sender, nonce))  # type: ignore[arg-type]
