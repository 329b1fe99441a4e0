"""The options of `ltzd collection`, `ltzd item` and `ltzd business`, checked all at once.

An option that was not given is None in the command's values and absent from the model's fields set.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ltzd.errors import FileRejected
from ltzd.rules.amounts import ltz_of, units_of
from ltzd.rules.brands.configuration import MAX_ID
from ltzd.rules.brands.toml_documents import reason_of
from ltzd.values import ZERO_ADDRESS, Address, address_of, bytes_of, has_right_case

MAX_UNITS = 2**96 - 1
_MAX_URI_LENGTH = 2_000
_WHOLE_NUMBER = re.compile(r"[0-9]{1,30}")

T = TypeVar("T", bound=BaseModel)


def _units(value: object) -> object:
    if not isinstance(value, str):
        return value
    units = units_of(value)
    if units > MAX_UNITS:
        raise ValueError(f"must be at most {ltz_of(MAX_UNITS)} LTZ")
    return units


def _whole_number(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not _WHOLE_NUMBER.fullmatch(value):
        raise ValueError("must be a whole number")
    return int(value)


def _address(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        address = address_of(value)
    except ValueError:
        raise ValueError("must be an address: 0x and 40 hex digits") from None
    if not has_right_case(value):
        raise ValueError("has a wrong checksum (EIP-55): look for a typing mistake")
    if address == ZERO_ADDRESS:
        raise ValueError("must not be the zero address")
    return address


def _bytes32(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        raw = bytes_of(value)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise ValueError("must be 0x and 64 hex digits")
    return raw


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not hold control characters")
    return text


Units = Annotated[int, BeforeValidator(_units)]
Uint16 = Annotated[int, BeforeValidator(_whole_number), Field(le=2**16 - 1)]
Uint32 = Annotated[int, BeforeValidator(_whole_number), Field(le=2**32 - 1)]
Id = Annotated[int, BeforeValidator(_whole_number), Field(ge=1, le=MAX_ID)]
Wallet = Annotated[Address, BeforeValidator(_address)]
Bytes32 = Annotated[bytes, BeforeValidator(_bytes32)]
Uri = Annotated[str, Field(max_length=_MAX_URI_LENGTH), AfterValidator(_printable)]


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    def changes(self) -> dict[str, Any]:
        """The options that were given, by field, without the id."""
        names = self.model_fields_set - _ARGUMENTS.keys()
        return {name: getattr(self, name) for name in names}


class NewCollection(Options):
    brand: Wallet
    payout: Wallet | None = None
    price: Units = 0
    max_supply: Uint32 = 0
    max_per_user: Uint16 = 1
    charges: Uint16
    uri: Uri = ""
    inactive: bool = False
    requires_sig: bool = False


class ChangedCollection(Options):
    collection: Id
    brand: Wallet | None = None
    payout: Wallet | None = None
    price: Units | None = None
    max_supply: Uint32 | None = None
    max_per_user: Uint16 | None = None
    active: bool | None = None


class NewItem(Options):
    item: Id
    brand: Wallet
    payout: Wallet | None = None
    price: Units = 0
    stock: Uint32
    max_per_order: Uint16 = 0
    metadata: Bytes32 = bytes(32)
    inactive: bool = False
    burns: bool = False


class ChangedItem(Options):
    item: Id
    brand: Wallet | None = None
    payout: Wallet | None = None
    price: Units | None = None
    stock: Uint32 | None = None
    max_per_order: Uint16 | None = None
    metadata: Bytes32 | None = None
    active: bool | None = None
    burns: bool | None = None


class BusinessApproval(Options):
    business: Wallet
    approved: bool = True


class SenderOption(Options):
    sender: Wallet | None = None


_ARGUMENTS = {"collection": "COLLECTION", "item": "ITEM", "business": "ADDRESS", "sender": "--from"}
"""The name that a person gives a field, where that is not the option of the same name."""


def parse_options(
    model: type[T], values: Mapping[str, object], faults: list[str], *, needs_change: bool = False
) -> T:
    """The values as `model`. Raises FileRejected with every fault.

    `faults` are those that the caller has found already. With `needs_change` at least one option
    beside the id must be given.
    """
    if needs_change and all(values[name] is None for name in values.keys() - _ARGUMENTS.keys()):
        faults = [*faults, "no change is given: name at least one option to change"]
    options, more_faults = _validate(model, values)
    if options is None or faults:
        raise FileRejected([*faults, *more_faults])
    return options


def parse_sender(text: str | None) -> tuple[Address | None, list[str]]:
    """The address of `--from`, and its faults."""
    option, faults = _validate(SenderOption, {"sender": text})
    return (option.sender if option else None), faults


def _validate(model: type[T], values: Mapping[str, object]) -> tuple[T | None, list[str]]:
    try:
        given = {name: value for name, value in values.items() if value is not None}
        return model.model_validate(given), []
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return None, [f"{_option_name(each['loc'][0])}: {reason_of(each)}" for each in details]


def _option_name(field: int | str) -> str:
    return _ARGUMENTS.get(str(field), f"--{str(field).replace('_', '-')}")
