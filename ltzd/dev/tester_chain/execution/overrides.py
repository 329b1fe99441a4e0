"""The state and the block that a call assumes in place of those that the chain holds.

Values have been checked before: amounts in wei, times in Unix seconds.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from ltzd.dev.tester_chain.execution.block import Header
from ltzd.dev.tester_chain.execution.state import EvmState
from ltzd.values import Address


class AccountOverride(msgspec.Struct, frozen=True):
    """A field that is None keeps the account's value; with `replaces_storage` other slots are 0."""

    balance: int | None = None
    nonce: int | None = None
    code: bytes | None = None
    slots: Mapping[int, int] = msgspec.field(default_factory=dict)
    replaces_storage: bool = False


class Overrides(msgspec.Struct, frozen=True):
    accounts: Mapping[Address, AccountOverride] = msgspec.field(default_factory=dict)
    header: Mapping[str, int | bytes] = msgspec.field(default_factory=dict)
    """Fields of py-evm's header by name."""

    def apply(self, state: EvmState) -> None:
        for address, account in self.accounts.items():
            _apply(state, address, account)

    def changed(self, header: Header) -> Header:
        return header.copy(**self.header) if self.header else header


NO_OVERRIDES: Final = Overrides()


def _apply(state: EvmState, address: Address, account: AccountOverride) -> None:
    if account.balance is not None:
        state.set_balance(address, account.balance)
    if account.nonce is not None:
        state.set_nonce(address, account.nonce)
    if account.code is not None:
        state.set_code(address, account.code)
    if account.replaces_storage:
        state.clear_storage(address)
    for slot, value in account.slots.items():
        state.set_storage(address, slot, value)
