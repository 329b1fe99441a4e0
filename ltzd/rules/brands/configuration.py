"""A brand's configuration: the validated content of its file, with the specification's defaults.

docs/brands.md describes the file; amounts are whole LTZ. `parse_brand_file` reports all faults
together, each with its line.
"""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from functools import cache, cached_property
from typing import Annotated, Self
from urllib.parse import urlsplit
from uuid import UUID
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from ltzd.errors import FileRejected
from ltzd.rules.brands import value_types as brand_values
from ltzd.rules.brands.toml_documents import FieldPath, TomlFile, reason_of
from ltzd.rules.brands.value_types import MAX_COUNT, IsNumber, OnChainId, Text
from ltzd.rules.constraints.constraints import Constraint, constraint_fault, without_repeats
from ltzd.rules.domains.customer_urls import check_public_url
from ltzd.rules.domains.names import normal_domain
from ltzd.rules.operator.patience import MOST_PATIENCE_SECONDS
from ltzd.values import Address, address_of

FIRST_CATALOGUE = {
    "account_creation": 100,
    "complete_survey": 75,
    "newsletter_subscribe": 25,
    "rate_experience": 50,
    "subscribe_renewal": 200,
    "form_submit": 10,
}
"""Event types that every brand has unless its file says otherwise, with their LTZ (spec 2.4)."""

SECOND_CATALOGUE = frozenset(
    (
        "account_creation",
        "email_verification",
        "first_purchase",
        "purchase",
        "referral",
        "review_submission",
        "newsletter_signup",
        "profile_completion",
    )
)
"""Event types of the specification that need a rule in the brand's file (spec 2.4)."""

CATALOGUES = SECOND_CATALOGUE | FIRST_CATALOGUE.keys()
"""All other event types are custom types of a brand."""

UNLIMITED = frozenset((-1, 999_999))
"""Values of max_claims_per_user that mean no limit (spec 2.3.1)."""

DEFAULT_BYPASS_SOURCES = ("discord_manual_reward", "voice_claim", "gateway_event")
"""Spec 4.1 rule 5."""

PER_DOLLAR_TYPE = "purchase"
"""The only type whose events have an amount of money (spec 2.4)."""

LISTS = ("events", "perks", "constraints")
"""Sections with many entries; the other sections are `brand` and `site`."""

MAX_ID = brand_values.MAX_ID
EVENT_TYPE = re.compile(r"[A-Za-z0-9_]{1,50}")
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")
_DAYS = re.compile(r"[1-9][0-9]{0,4}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@cache
def _time_zones() -> frozenset[str]:
    """Without `localtime`, which differs from machine to machine."""
    return frozenset(available_timezones() - {"localtime"})


def _known_time_zone(name: str) -> str:
    # "UTC" must work on machines without a time-zone database.
    if name == "UTC" or name in _time_zones():
        return name
    raise ValueError(
        "must be a time zone that this machine knows by its plain name, such as UTC or Europe/Paris"
    )


def _unique_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("must not be empty")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ValueError(f"holds {repeated[0]} more than once")
    return names


def _brand_domain(text: str) -> str:
    domain = normal_domain(text)
    if "." not in domain and domain != "localhost":
        raise ValueError("must not be a whole top-level domain")
    return domain


def _event_type(text: str) -> str:
    if not EVENT_TYPE.fullmatch(text):
        raise ValueError("must be 1 to 50 letters, digits and underscores")
    return text


def _lower_case_address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError("must be an address: 0x and 40 hex digits in lower case")
    return text


def _lower_case_uuid(text: str) -> str:
    if not _UUID.fullmatch(lower := text.lower()):
        raise ValueError("must be a UUID, such as 6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77")
    return lower


def _streak_days(key: object) -> object:
    """Keys of tables are text, in TOML and in JSON."""
    if isinstance(key, int) or (isinstance(key, str) and _DAYS.fullmatch(key)):
        return int(key)
    raise ValueError("must be a streak's days, 1 to 99999")


def _webhook_url(text: str) -> str:
    if not text.isascii():
        raise ValueError("must be plain ASCII: percent-encode a path, write a host as xn--…")
    check_public_url(text)
    return text


WebhookUrl = Annotated[Text, AfterValidator(_webhook_url)]
EventType = Annotated[str, AfterValidator(_event_type)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT, strict=True)]
Domain = Annotated[str, AfterValidator(_brand_domain)]
PerDollar = Annotated[Decimal, IsNumber, Field(gt=0, le=10**6, decimal_places=18)]
Hours = Annotated[Decimal, IsNumber, Field(ge=0, le=87_600, decimal_places=18)]
StreakDays = Annotated[int, BeforeValidator(_streak_days)]
Multiplier = Annotated[Decimal, IsNumber, Field(ge=0, le=1000, decimal_places=18)]
Bonus = Annotated[int, Field(ge=1, le=10**6, strict=True)]
Id = Annotated[str, AfterValidator(_lower_case_address)]
PerkId = Annotated[str, AfterValidator(_lower_case_uuid)]


class EventRule(BaseModel):
    """An `[[events]]` entry. Without a reward, the first catalogue's reward applies.

    With `signed` only requests that the brand has signed may send the type.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: EventType
    enabled: StrictBool = True
    signed: StrictBool = False
    reward: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = None
    reward_per_dollar: PerDollar | None = None
    cooldown_hours: Hours = Decimal(24)
    max_claims_per_user: Annotated[int, Field(ge=-1, le=MAX_COUNT, strict=True)] = 1
    max_total_claims: Count | None = None
    detection_method: Text = "api"
    url_patterns: tuple[Text, ...] = ()
    success_selectors: tuple[Text, ...] = ()
    channels: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _has_the_one_reward_of_its_type(self) -> Self:
        if self.type == PER_DOLLAR_TYPE:
            if self.reward is not None:
                raise ValueError("purchase is rewarded by the dollar: give reward_per_dollar")
            if self.reward_per_dollar is None and self.enabled:
                raise ValueError("purchase needs reward_per_dollar")
        elif self.reward_per_dollar is not None:
            raise ValueError("reward_per_dollar is for purchase only: give reward")
        elif self.enabled and self.reward is None and self.type not in FIRST_CATALOGUE:
            raise ValueError("a type outside the first catalogue needs reward")
        return self

    @cached_property
    def ltz(self) -> int:
        """The reward of an event, except for `purchase`, which is rewarded by the dollar."""
        return FIRST_CATALOGUE.get(self.type, 0) if self.reward is None else self.reward

    @cached_property
    def claims_per_user(self) -> int | None:
        """The maximum, or None if there is no limit."""
        return None if self.max_claims_per_user in UNLIMITED else self.max_claims_per_user

    @cached_property
    def cooldown(self) -> timedelta:
        return timedelta(seconds=float(self.cooldown_hours * 3600))


class Perk(BaseModel):
    """A `[[perks]]` entry: a perk on the brand's site, and the collection or item behind it.

    The file cannot show whether the collection or item exists on chain and is the brand's own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    id: PerkId
    name: Text
    category: Text
    collection_id: OnChainId | None = None
    item_id: OnChainId | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if (self.collection_id is None) == (self.item_id is None):
            raise ValueError("give either collection_id or item_id")
        return self


_SITE_URL = re.compile(r"https://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*/?")
_REST_PREFIX = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]+")


def _site_url(text: str) -> str:
    if not _SITE_URL.fullmatch(text) or {".", ".."} & set(text.split("/")):
        raise ValueError("must be a URL such as https://shop.example/blog, without a query")
    return text.rstrip("/")


def _rest_prefix(text: str) -> str:
    if not _REST_PREFIX.fullmatch(text):
        raise ValueError("must be a path such as wp-json or api/rest: letters, digits, _, - and /")
    return text


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError("must be a name such as loyalty: letters, digits, _ and -")
    return text


class Site(BaseModel):
    """The `[site]` section: the brand's host sites, and the rewards of check-ins.

    `multipliers` and `milestones` are by the days of a streak; rewards are whole LTZ.
    With `verified_emails` the operator asserts that the sites accept only log-ins whose e-mail
    address its owner has confirmed. `url` is where the site at its host is asked about a log-in,
    `rest_prefix` is the path of the sites' REST API, and `namespace` is ltzd's namespace in that
    API; without them the settings decide.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    hosts: Annotated[tuple[Domain, ...], AfterValidator(_unique_names)]
    url: Annotated[Text, AfterValidator(_site_url)] | None = None
    rest_prefix: Annotated[Text, AfterValidator(_rest_prefix)] | None = None
    namespace: Annotated[Text, AfterValidator(_namespace)] | None = None
    checkin_reward: Annotated[int, Field(ge=0, le=10**6, strict=True)] = 0
    multipliers: Mapping[StreakDays, Multiplier] = {}
    milestones: Mapping[StreakDays, Bonus] = {}
    verified_emails: StrictBool = False

    @model_validator(mode="after")
    def _url_is_at_a_host(self) -> Self:
        if self.url is not None and not any(map(self.url_of, self.hosts)):
            # Members' log-ins travel to this URL, so it must be the site that issued them.
            raise ValueError("the host in url must be one of hosts")
        return self

    def url_of(self, host: str) -> str | None:
        """Return `url` if it is the URL of the site at `host`, in normal form."""
        if self.url is None or (urlsplit(self.url).hostname or "").removesuffix(".") != host:
            return None
        return self.url

    def multiplier_of(self, days: int) -> Decimal:
        """The multiplier of a streak of `days`: that of the longest length which it has reached."""
        reached = [length for length in self.multipliers if length <= days]
        return self.multipliers[max(reached)] if reached else Decimal(1)

    def reward_of(self, days: int) -> int:
        """Whole LTZ, rounded down, for a check-in that makes the streak `days` long."""
        return int(self.checkin_reward * self.multiplier_of(days))


class Brand(BaseModel):
    """A whole brand file. Domains are in normal form; use `rule_of` to read event rules."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    id: Id
    name: Text
    domains: Annotated[tuple[Domain, ...], AfterValidator(_unique_names)]
    automation: StrictBool = True
    duplicate_window_seconds: Annotated[int, Field(ge=0, le=86_400, strict=True)] = 60
    bypass_sources: tuple[Text, ...] = DEFAULT_BYPASS_SOURCES
    signed_bypass: StrictBool = False
    daily_mint_budget: Count = 0
    max_reward_per_event: Count = 0
    max_new_wallets_per_hour: Count = 0
    events_per_minute_per_ip: Count = 0
    webhook_url: WebhookUrl | None = None
    time_zone: Annotated[Text, AfterValidator(_known_time_zone)] = "UTC"
    patience_seconds: Annotated[int, Field(ge=0, le=MOST_PATIENCE_SECONDS, strict=True)] = 0
    events: tuple[EventRule, ...] = ()
    perks: tuple[Perk, ...] = ()
    constraints: Annotated[tuple[Constraint, ...], AfterValidator(without_repeats)] = ()
    site: Site | None = None

    @cached_property
    def address(self) -> Address:
        return address_of(self.id)

    def rule_of(self, event_type: str) -> EventRule | None:
        """Return None for a disabled type, and for one that is in neither file nor catalogue."""
        return self._rules.get(event_type)

    def configured_events(self) -> tuple[EventRule, ...]:
        """The enabled rules: the first catalogue's in its order, then the file's in theirs."""
        return tuple(self._rules.values())

    def constraints_on(self, collection_id: int) -> tuple[Constraint, ...]:
        """The constraints that must all be satisfied.

        They have no meaning if the collection is not the brand's, which only the chain shows.
        """
        return tuple(
            constraint
            for constraint in self.constraints
            if constraint.collection_id == collection_id
        )

    def perk(self, perk_id: UUID) -> Perk | None:
        """The perk that the brand's site lists under this id, or None."""
        return next((perk for perk in self.perks if perk.id == str(perk_id)), None)

    @cached_property
    def _rules(self) -> Mapping[str, EventRule]:
        rules = {kind: EventRule(type=kind) for kind in FIRST_CATALOGUE}
        rules |= {rule.type: rule for rule in self.events}
        return {kind: rule for kind, rule in rules.items() if rule.enabled}


def parse_brand_file(text: str, name: str) -> Brand:
    """The brand of a file. `name` is the file's name in messages.

    Raises FileRejected with all faults.
    """
    file = TomlFile(text, name)
    flat, faults = _flat(file)
    faults += _repeated(file, "events", "type") + _repeated(file, "perks", "id")
    try:
        brand = Brand.model_validate(flat)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        if "brand" not in file.document:
            faults.append(file.fault(("brand",), "the section is missing"))
            errors = [fault for fault in errors if fault["loc"][0] in ("site", *LISTS)]
        faults += [file.fault(*_path_and_reason(fault)) for fault in errors]
        raise FileRejected(faults) from None
    if faults:
        raise FileRejected(faults)
    return brand


def _flat(file: TomlFile) -> tuple[dict[str, object], list[str]]:
    """The document in the shape of `Brand`, and the faults of its sections."""
    faults = [
        file.fault((section,), "unknown section")
        for section in file.document
        if section not in ("brand", "site", *LISTS)
    ]
    table = file.document.get("brand", {})
    if not isinstance(table, dict):
        raise FileRejected([*faults, file.fault(("brand",), "must be a section")])
    for name in LISTS:
        if name in table:
            reason = f"unknown key: give [[{name}]] sections"
            faults.append(file.fault(("brand", name), reason))
    if "site" in table:
        faults.append(file.fault(("brand", "site"), "unknown key: give a [site] section"))
    others = {name: file.document.get(name, []) for name in LISTS}
    return table | others | {"site": file.document.get("site")}, faults


def _repeated(file: TomlFile, section: str, key: str) -> list[str]:
    """Faults for entries with the name of an earlier entry."""
    entries = file.document.get(section)
    seen: set[str] = set()
    faults = []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        name = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        # Event types are case-sensitive, UUIDs are not.
        name = name.lower() if key == "id" else name
        if name in seen:
            faults.append(file.fault((section, index, key), f"{name} is there already"))
        seen.add(name)
    return faults


def _path_and_reason(error: ErrorDetails) -> tuple[FieldPath, str]:
    match error["loc"]:
        case ("constraints", int(), *_):
            return constraint_fault(error)
        case ("site", str(key), int() | str() as entry, *_) if key in ("multipliers", "milestones"):
            # After the entry, pydantic adds whether its key or its value is at fault.
            return ("site", key, str(entry)), reason_of(error)
        case (str(section), *_) as place if section in ("site", *LISTS):
            return place, reason_of(error)
        case place:
            return ("brand", *place), reason_of(error)
