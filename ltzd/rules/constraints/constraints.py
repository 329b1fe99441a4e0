"""Purchase constraints: the conditions that a user must satisfy to claim from a collection.

`is_satisfied` decides from an observation: for `external_api` the whole JSON answer, for
`nft_holding` how many tokens the user holds, for `ltz_balance` the user's LTZ in units, for
`chat_role` the ids of the user's roles, for `chat_level` the user's level. The observation is null
for a user who is not a member or has no level. In doubt a constraint is not satisfied: a null or
missing value satisfies only `exists = false`, a list or an object only `exists = true`. Numbers are
compared exactly, and never equal text.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cached_property
from operator import ge, gt, le, lt
from typing import Annotated, Final, Literal, TypeAlias, TypeGuard

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from ltzd.rules.amounts import DECIMALS, units_of
from ltzd.rules.brands.toml_documents import FieldPath, reason_of
from ltzd.rules.brands.value_types import MAX_COUNT, AnyValue, IsNumber, OnChainId, Value, bools_in
from ltzd.rules.constraints.json_paths import Json, JsonPath, parse_path, value_at
from ltzd.rules.domains.customer_urls import check_public_url
from ltzd.values import Address, LtzUnits, checksummed

KINDS: Final = ("external_api", "nft_holding", "ltz_balance", "chat_role", "chat_level")
CHAT_KINDS: Final = ("chat_role", "chat_level")
MOST_ON_ONE_COLLECTION: Final = 10
"""Bounded, since all are evaluated while the user waits."""

Operator = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "exists"]

_ORDERS: Final[Mapping[str, Callable[[int | Decimal, int | Decimal], bool]]] = {
    "gt": gt,
    "gte": ge,
    "lt": lt,
    "lte": le,
}
_PLACEHOLDERS = ("{user_address}", "{collection_id}")
_SNOWFLAKE = re.compile(r"[0-9]{17,20}")


def _template(text: str) -> str:
    if not text.isascii():
        raise ValueError("must be plain ASCII: percent-encode a path, write a host as xn--…")
    host_part = re.split("[/?#]", text.partition("://")[2], maxsplit=1)[0]
    if "{" in host_part or "}" in host_part:
        raise ValueError("may hold {…} only in its path or query")
    rest = text
    for placeholder in _PLACEHOLDERS:
        rest = rest.replace(placeholder, "")
    if "{" in rest or "}" in rest:
        raise ValueError("may hold no braces but those of {user_address} and {collection_id}")
    check_public_url(text)
    return text


def _path(text: str) -> str:
    parse_path(text)
    return text


def is_snowflake(text: str) -> bool:
    """Whether the text is an id of a guild, role or user of the chat platform."""
    return _SNOWFLAKE.fullmatch(text) is not None and int(text) < 2**64


def _snowflake(given: object) -> str:
    """In a file the id may also be a number: TOML's numbers hold all ids so far."""
    text = str(given) if isinstance(given, int | str) else ""
    if not is_snowflake(text):
        raise ValueError("must be an id of the chat platform: 17 to 20 digits")
    return text


Snowflake = Annotated[str, BeforeValidator(_snowflake)]
Ttl = Annotated[int, Field(ge=1, le=86_400, strict=True)]
Ltz = Annotated[Decimal, IsNumber, Field(gt=0, le=MAX_COUNT, decimal_places=DECIMALS)]
ApiUrl = Annotated[str, AfterValidator(_template)]
PathText = Annotated[str, AfterValidator(_path)]


class _OnCollection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    collection_id: OnChainId


class ExternalApi(_OnCollection):
    """`url` is the template as configured, with which an invalidation's `api_url` is compared."""

    kind: Literal["external_api"]
    method: Literal["GET", "POST"] = "GET"
    url: ApiUrl
    json_path: PathText
    operator: Operator
    value: AnyValue | None = Field(default=None, validate_default=True)
    ttl_seconds: Ttl = 60

    @field_validator("value")
    @classmethod
    def _suits_the_operator(cls, value: Value | None, info: ValidationInfo) -> Value | None:
        return _suited(value, info.data["operator"]) if "operator" in info.data else value

    @cached_property
    def path(self) -> JsonPath:
        return parse_path(self.json_path)

    def __eq__(self, other: object) -> bool:
        # In Python True == 1, so a change from one to the other would go unnoticed.
        return (
            isinstance(other, ExternalApi)
            and super().__eq__(other)
            and bools_in(self.value) == bools_in(other.value)
        )

    __hash__ = _OnCollection.__hash__


class NftHolding(_OnCollection):
    kind: Literal["nft_holding"]
    holding_collection_id: OnChainId
    min: Annotated[int, Field(ge=1, le=MAX_COUNT, strict=True)] = 1
    ttl_seconds: Ttl = 60


class LtzBalance(_OnCollection):
    kind: Literal["ltz_balance"]
    min: Ltz
    ttl_seconds: Ttl = 60

    @cached_property
    def units(self) -> LtzUnits:
        return units_of(format(self.min, "f"))


class ChatRole(_OnCollection):
    """`role_id` may be the guild's own id: that is the role which every member has."""

    kind: Literal["chat_role"]
    guild_id: Snowflake
    role_id: Snowflake
    ttl_seconds: Ttl = 60


class ChatLevel(_OnCollection):
    kind: Literal["chat_level"]
    guild_id: Snowflake
    min: Annotated[int, Field(ge=1, le=MAX_COUNT, strict=True)]
    ttl_seconds: Ttl = 60


ChatConstraint: TypeAlias = ChatRole | ChatLevel
Constraint: TypeAlias = Annotated[
    ExternalApi | NftHolding | LtzBalance | ChatConstraint, Field(discriminator="kind")
]
_MODELS: Final[tuple[type[_OnCollection], ...]] = (
    *(ExternalApi, NftHolding, LtzBalance),
    *(ChatRole, ChatLevel),
)


def fill_url(constraint: ExternalApi, user: Address) -> str:
    """Needs no percent-encoding, since an address and a number have no special characters."""
    url = constraint.url
    for name, value in question(constraint, user).items():
        url = url.replace(f"{{{name}}}", str(value))
    return url


def question(constraint: ExternalApi, user: Address) -> dict[str, str | int]:
    """The body of a POST, and the values of a URL's placeholders.

    The address has its EIP-55 checksum, as in every answer of ltzd over HTTP.
    """
    return {"user_address": checksummed(user), "collection_id": constraint.collection_id}


def is_satisfied(constraint: Constraint, observed: Json) -> bool:
    match constraint:
        case ExternalApi():
            return _holds(constraint, value_at(constraint.path, observed))
        case NftHolding():
            return _count(observed) >= constraint.min
        case LtzBalance():
            return _count(observed) >= constraint.units
        case ChatRole(guild_id=guild, role_id=role):
            # The platform does not list the role that every member has.
            return isinstance(observed, list) and (role == guild or role in observed)
        case ChatLevel():
            return isinstance(observed, int) and observed >= constraint.min


def without_repeats(constraints: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    seen: defaultdict[int, list[Constraint]] = defaultdict(list)
    for number, constraint in enumerate(constraints, start=1):
        others = seen[constraint.collection_id]
        if constraint in others:
            raise ValueError(f"entry {number} repeats an earlier one")
        if len(others) == MOST_ON_ONE_COLLECTION:
            raise ValueError(
                f"collection {constraint.collection_id} has more than {MOST_ON_ONE_COLLECTION}"
            )
        others.append(constraint)
    return constraints


def constraint_fault(error: ErrorDetails) -> tuple[FieldPath, str]:
    """The fault's path in the file, which pydantic gives with the entry's kind, and its reason."""
    section, index, *rest = error["loc"]
    entry = (section, index)
    match error["type"]:
        case "union_tag_not_found":
            return (*entry, "kind"), "is missing"
        case "union_tag_invalid":
            return (*entry, "kind"), f"must be one of {', '.join(KINDS)}"
        case "model_attributes_type":
            return entry, "must be a section"
        case "extra_forbidden" if owners := _owners(str(rest[-1])):
            return (*entry, rest[-1]), f"is for {_listed(owners)}, not for {rest[0]}"
    return (*entry, *rest[1:]), reason_of(error)


def _owners(field: str) -> list[str]:
    return [kind for kind, model in zip(KINDS, _MODELS, strict=True) if field in model.model_fields]


def _listed(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _suited(value: Value | None, operator: Operator) -> Value:
    if operator == "exists":
        value = True if value is None else value
    elif value is None:
        raise ValueError("is missing")
    match operator:
        case "exists" if not isinstance(value, bool):
            raise ValueError("must be true or false for exists")
        case "in" if not isinstance(value, tuple):
            raise ValueError("must be a list for in")
        case "gt" | "gte" | "lt" | "lte" if not _is_number(value):
            raise ValueError(f"must be a number for {operator}")
        case "eq" | "ne" if isinstance(value, tuple):
            raise ValueError(f"must not be a list for {operator}")
    return value


def _holds(constraint: ExternalApi, value: Json) -> bool:
    wanted = constraint.value
    match constraint.operator:
        case "exists":
            return (value is not None) is wanted
        case _ if value is None or isinstance(value, list | dict):
            return False
        case "eq":
            return _is_same(value, wanted)
        case "ne":
            return not _is_same(value, wanted)
        case "in":
            return isinstance(wanted, tuple) and any(_is_same(value, choice) for choice in wanted)
        case order:
            return _is_number(value) and _is_number(wanted) and _ORDERS[order](value, wanted)


def _is_same(value: Json, wanted: Value | None) -> bool:
    return isinstance(value, bool) is isinstance(wanted, bool) and value == wanted


def _is_number(value: object) -> TypeGuard[int | Decimal]:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _count(observed: Json) -> int:
    assert isinstance(observed, int), "an amount on chain is a whole number"
    return observed
