"""State overrides and block overrides of eth_call, eth_estimateGas and eth_createAccessList.

The fields are geth's. `movePrecompileToAddress` is refused.
"""

from collections.abc import Callable, Mapping
from typing import Final, cast

from ltzd.dev.tester_chain.errors import invalid_parameter, refused
from ltzd.dev.tester_chain.execution.overrides import AccountOverride, Overrides
from ltzd.dev.tester_chain.json_rpc.params import Params, address, data, hash32, quantity
from ltzd.values import Address, checksummed

_NONCE_AT_MOST: Final = 2**64 - 1

_HEADER_FIELDS: Final[Mapping[str, tuple[str, Callable[[object, str], int | bytes]]]] = {
    "number": ("block_number", quantity),
    "difficulty": ("difficulty", quantity),
    "time": ("timestamp", quantity),
    "gasLimit": ("gas_limit", quantity),
    "feeRecipient": ("coinbase", address),
    "coinbase": ("coinbase", address),
    "prevRandao": ("mix_hash", hash32),
    "random": ("mix_hash", hash32),
    "baseFeePerGas": ("base_fee_per_gas", quantity),
    "baseFee": ("base_fee_per_gas", quantity),
}


def overrides(params: Params, position: int) -> Overrides:
    """Read the state overrides at `position` and the block overrides after them."""
    accounts, block = params.given(position), params.given(position + 1)
    return Overrides(
        {} if accounts is None else _accounts(params.mapping(position, "stateOverrides")),
        {} if block is None else _header(params.mapping(position + 1, "blockOverrides")),
    )


def _accounts(fields: Mapping[str, object]) -> dict[Address, AccountOverride]:
    return {
        address(account, "stateOverrides"): _account(account, override)
        for account, override in fields.items()
    }


def _account(account: str, override: object) -> AccountOverride:
    if not isinstance(override, dict):
        raise invalid_parameter("stateOverrides", "expected an object for each address")
    fields = cast("dict[str, object]", override)
    if fields.get("movePrecompileToAddress") is not None:
        raise invalid_parameter("movePrecompileToAddress", "precompiles cannot be moved here")
    whole, changed = fields.get("state"), fields.get("stateDiff")
    if whole is not None and changed is not None:
        name = checksummed(address(account, "stateOverrides"))
        raise refused(f"account {name} has both 'state' and 'stateDiff'")
    balance, nonce, code = (fields.get(name) for name in ("balance", "nonce", "code"))
    return AccountOverride(
        balance=None if balance is None else quantity(balance, "balance"),
        nonce=None if nonce is None else quantity(nonce, "nonce", at_most=_NONCE_AT_MOST),
        code=None if code is None else data(code, "code"),
        slots=_slots(changed if whole is None else whole),
        replaces_storage=whole is not None,
    )


def _slots(value: object) -> dict[int, int]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_parameter("state", "expected an object of slots")
    return {quantity(slot, "slot"): quantity(word, "value") for slot, word in value.items()}


def _header(fields: Mapping[str, object]) -> dict[str, int | bytes]:
    """Ignore fields without a meaning for the EVM here, such as withdrawals."""
    return {
        _HEADER_FIELDS[name][0]: _HEADER_FIELDS[name][1](value, name)
        for name, value in fields.items()
        if name in _HEADER_FIELDS and value is not None
    }
