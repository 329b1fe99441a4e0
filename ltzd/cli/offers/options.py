"""What the options of `ltzd collection | item | business` may say, every fault told at once.

An option that is not given is None, and missing or unchanged.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ltzd.errors import FileRejected
from ltzd.rules.amounts import ltz_of, units_of
from ltzd.rules.brands.configuration import MAX_ID
from ltzd.rules.brands.toml_documents import reason_of
from ltzd.values import ZERO_ADDRESS, Address, address_of, bytes_of, checksummed

MOST_UNITS = 2**96 - 1
_LONGEST_URI = 2_000
_WHOLE = re.compile(r"[0-9]{1,30}")

T = TypeVar("T", bound=BaseModel)


def _units(value: object) -> object:
    if not isinstance(value, str):
        return value
    units = units_of(value)
    if units > MOST_UNITS:
        raise ValueError(f"must be at most {ltz_of(MOST_UNITS)} LTZ")
    return units


def _whole(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not _WHOLE.fullmatch(value):
        raise ValueError("must be a whole number")
    return int(value)


def _address(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        address = address_of(value)
    except ValueError:
        raise ValueError("must be an address: 0x and 40 hex digits") from None
    digits = value[2:]
    if digits not in {digits.lower(), digits.upper(), checksummed(address)[2:]}:
        raise ValueError("is mistyped: its letters' case does not fit (EIP-55)")
    if address == ZERO_ADDRESS:
        raise ValueError("must not be the zero address")
    return address


def _word(value: object) -> object:
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
Uint16 = Annotated[int, BeforeValidator(_whole), Field(le=2**16 - 1)]
Uint32 = Annotated[int, BeforeValidator(_whole), Field(le=2**32 - 1)]
Id = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MAX_ID)]
Wallet = Annotated[Address, BeforeValidator(_address)]
Word = Annotated[bytes, BeforeValidator(_word)]
Uri = Annotated[str, Field(max_length=_LONGEST_URI), AfterValidator(_printable)]


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    def given(self) -> dict[str, Any]:
        """What was said, by field; without the id."""
        names = self.model_fields_set - {"collection", "item", "business"}
        return {name: getattr(self, name) for name in names}


class NewCollection(Options):
    brand: Wallet
    payout: Wallet | None = None
    price: Units = 0
    max_supply: Uint32 = 0
    max_per_user: Uint16 = 1
    charges: Uint16
    uri: Uri = ""


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
    metadata: Word = bytes(32)


class ChangedItem(Options):
    item: Id
    brand: Wallet | None = None
    payout: Wallet | None = None
    price: Units | None = None
    stock: Uint32 | None = None
    max_per_order: Uint16 | None = None
    metadata: Word | None = None
    active: bool | None = None
    burns: bool | None = None


class Business(Options):
    business: Wallet


class Sender(Options):
    sender: Wallet | None = None


_ARGUMENTS = {"collection": "COLLECTION", "item": "ITEM", "business": "ADDRESS", "sender": "--from"}


def parse_options(
    kind: type[T], given: Mapping[str, object], faults: list[str], *, changes: bool = False
) -> T:
    """The options as `kind`; None among them was not given. Raises FileRejected with all faults.

    `faults` are those found elsewhere; with `changes` something must be given.
    """
    if changes and all(given[name] is None for name in given.keys() - _ARGUMENTS.keys()):
        faults = [*faults, "nothing is to be changed: give an option that says what"]
    found, more = _read(kind, given)
    if found is None or faults:
        raise FileRejected([*faults, *more])
    return found


def sender_of(text: str | None) -> tuple[Address | None, list[str]]:
    """Who `--from` names, and what is wrong with it."""
    found, faults = _read(Sender, {"sender": text})
    return (found.sender if found else None), faults


def _read(kind: type[T], given: Mapping[str, object]) -> tuple[T | None, list[str]]:
    try:
        said = {name: value for name, value in given.items() if value is not None}
        return kind.model_validate(said), []
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return None, [f"{_option(each['loc'][0])}: {reason_of(each)}" for each in details]


def _option(field: int | str) -> str:
    return _ARGUMENTS.get(str(field), f"--{str(field).replace('_', '-')}")
