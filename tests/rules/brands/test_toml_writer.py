"""A brand written as TOML is the same brand when it is read again."""

import tomllib
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.brands.changes import changes
from ltzd.rules.brands.configuration import (
    FIRST_CATALOGUE,
    UNLIMITED,
    Brand,
    EventRule,
    Perk,
    Site,
    parse_brand_file,
)
from ltzd.rules.brands.toml_writer import toml_of, toml_value
from ltzd.rules.brands.value_types import MAX_ID
from ltzd.rules.constraints.constraints import Constraint, ExternalApi, LtzBalance, NftHolding

PRINTABLE = st.characters(categories=("L", "N", "P", "S")) | st.just(" ")
TEXT = st.text(PRINTABLE, min_size=1, max_size=20) | st.sampled_from(
    ['"', "\\", '"""', "'''", "# no comment", "[[events]]", "a = 1", "Ω", "\U0001f600"]
)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
COUNTS = st.integers(0, 10**12)
DOMAINS = st.lists(
    st.sampled_from(["shop.example", "a.b.example", "xn--bcher-kva.example", "localhost"]),
    min_size=1,
    unique=True,
).map(tuple)


def decimals(least: str, most: int) -> st.SearchStrategy[Decimal]:
    return st.decimals(Decimal(least), most, allow_nan=False, places=18).map(Decimal.normalize)


@st.composite
def rules(draw: st.DrawFn, kind: str) -> EventRule:
    is_purchase = kind == "purchase"
    rewards = st.none() if kind in FIRST_CATALOGUE else st.nothing()
    return EventRule(
        type=kind,
        enabled=draw(st.booleans()),
        signed=draw(st.booleans()),
        reward=None if is_purchase else draw(rewards | st.integers(0, 10**9)),
        reward_per_dollar=draw(decimals("0.000000000000000001", 10**6)) if is_purchase else None,
        cooldown_hours=draw(decimals("0", 87_600)),
        max_claims_per_user=draw(COUNTS | st.sampled_from(sorted(UNLIMITED))),
        max_total_claims=draw(st.none() | COUNTS),
        detection_method=draw(TEXT),
        url_patterns=draw(TEXTS),
        success_selectors=draw(TEXTS),
        channels=draw(TEXTS),
    )


@st.composite
def perks(draw: st.DrawFn) -> Perk:
    on_chain = draw(st.sampled_from(["collection_id", "item_id"]))
    return Perk.model_validate(
        {
            "id": str(draw(st.uuids())),
            "name": draw(TEXT),
            "category": draw(TEXT),
            on_chain: draw(st.integers(1, MAX_ID)),
        }
    )


SCALARS = (
    st.booleans()
    | st.integers(-(10**77), 10**77)
    | st.decimals(-(10**18), 10**18, allow_nan=False)
    .filter(lambda number: abs(number.adjusted()) < 70)
    .filter(lambda number: abs(int(number.as_tuple().exponent)) < 70)
    | TEXT
)
VALUES: dict[str, st.SearchStrategy[object]] = {
    "eq": SCALARS,
    "gt": st.integers(-5, 5) | st.decimals(-5, 5, places=3),
    "in": st.lists(SCALARS, min_size=1, max_size=4).map(tuple),
    "exists": st.booleans(),
}
IDS = st.integers(1, 5)
TTLS = st.integers(1, 86_400)


@st.composite
def external_apis(draw: st.DrawFn) -> ExternalApi:
    operator = draw(st.sampled_from(sorted(VALUES)))
    return ExternalApi.model_validate(
        {
            "collection_id": draw(IDS),
            "kind": "external_api",
            "method": draw(st.sampled_from(["GET", "POST"])),
            "url": draw(
                st.sampled_from(["https://a.example/{user_address}?x='%22", "http://[::1]:1"])
            ),
            "json_path": draw(st.sampled_from(["$", "$.a[0]", "$['\"# \\\\ \\'']"])),
            "operator": operator,
            "value": draw(VALUES[operator]),
            "ttl_seconds": draw(TTLS),
        }
    )


CONSTRAINTS: st.SearchStrategy[Constraint] = (
    external_apis()
    | st.builds(
        NftHolding,
        collection_id=IDS,
        kind=st.just("nft_holding"),
        holding_collection_id=st.integers(1, MAX_ID),
        min=st.integers(1, 10**12),
        ttl_seconds=TTLS,
    )
    | st.builds(
        LtzBalance,
        collection_id=IDS,
        kind=st.just("ltz_balance"),
        min=decimals("0.000000000000000001", 10**12),
        ttl_seconds=TTLS,
    )
)


DAYS = st.integers(1, 99_999)
SITES = st.builds(
    Site,
    hosts=st.lists(
        st.sampled_from(["site.example", "a.site.example", "other.example"]),
        min_size=1,
        unique=True,
    ).map(tuple),
    checkin_reward=st.integers(0, 10**6),
    multipliers=st.dictionaries(DAYS, decimals("0", 1000), max_size=3),
    milestones=st.dictionaries(DAYS, st.integers(1, 10**6), max_size=3),
    verified_emails=st.booleans(),
)


@st.composite
def brands(draw: st.DrawFn) -> Brand:
    own = st.text("aZ0_", min_size=1, max_size=5)
    kinds = draw(st.lists(st.sampled_from(["purchase", *FIRST_CATALOGUE]) | own, unique=True))
    return Brand(
        id="0x" + draw(st.binary(min_size=20, max_size=20)).hex(),
        name=draw(TEXT),
        domains=draw(DOMAINS),
        automation=draw(st.booleans()),
        duplicate_window_seconds=draw(st.integers(0, 86_400)),
        bypass_sources=draw(TEXTS),
        signed_bypass=draw(st.booleans()),
        daily_mint_budget=draw(COUNTS),
        max_reward_per_event=draw(COUNTS),
        max_new_wallets_per_hour=draw(COUNTS),
        events_per_minute_per_ip=draw(COUNTS),
        patience_seconds=draw(st.integers(0, 86_400)),
        time_zone=draw(st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"])),
        events=tuple(draw(rules(kind)) for kind in kinds),
        perks=tuple(draw(st.lists(perks(), max_size=3, unique_by=lambda perk: perk.id))),
        constraints=tuple(draw(st.lists(CONSTRAINTS, max_size=4, unique=True))),
        site=draw(st.none() | SITES),
    )


@given(brands())
def test_applying_a_shown_brand_changes_nothing(brand: Brand) -> None:
    stored = Brand.model_validate_json(brand.model_dump_json())

    again = parse_brand_file(toml_of(stored), "shown.toml")

    assert again == brand
    assert changes(brand, again) == []
    assert toml_of(again) == toml_of(brand)


@given(brands(), SITES)
def test_changes_of_a_sites_section_are_described_field_by_field(brand: Brand, site: Site) -> None:
    old = brand.model_copy(update={"site": site.model_copy(update={"verified_emails": False})})
    new = brand.model_copy(update={"site": site.model_copy(update={"verified_emails": True})})
    assert changes(old, new) == ["~ site: verified_emails false -> true"]
    assert changes(new, new.model_copy(update={"site": None})) == ["- site"]
    (line,) = changes(new.model_copy(update={"site": None}), new)
    assert line.startswith("+ site: hosts [")
    assert "verified_emails true" in line


@given(TEXT | st.booleans() | COUNTS | TEXTS | decimals("0", 10**6))
def test_a_value_is_the_same_when_it_is_read_again(value: object) -> None:
    read = tomllib.loads(f"value = {toml_value(value)}", parse_float=Decimal)["value"]

    assert (tuple(read) if isinstance(read, list) else read) == value


def test_defaults_are_spelled_out_and_empty_lists_are_not_unless_they_mean_something() -> None:
    form = EventRule(type="form_submit")
    perk = Perk(
        id="6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77", name="Coffee", category="drinks", item_id=7
    )
    members = ExternalApi(
        collection_id=1,
        kind="external_api",
        url="https://api.example/{user_address}",
        json_path="$['it\\'s']",
        operator="exists",
    )
    holders = NftHolding(collection_id=1, kind="nft_holding", holding_collection_id=2)
    brand = Brand(
        id="0x" + "aa" * 20,
        name="Demo",
        domains=("shop.example",),
        bypass_sources=(),
        events=(form,),
        perks=(perk,),
        constraints=(members, holders),
    )

    assert (
        toml_of(brand)
        == """\
[brand]
id = "0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
name = "Demo"
domains = ["shop.example"]
automation = true
duplicate_window_seconds = 60
bypass_sources = []
signed_bypass = false
daily_mint_budget = 0
max_reward_per_event = 0
max_new_wallets_per_hour = 0
events_per_minute_per_ip = 0
time_zone = "UTC"
patience_seconds = 0

[[events]]
type = "form_submit"
enabled = true
signed = false
cooldown_hours = 24
max_claims_per_user = 1
detection_method = "api"

[[perks]]
id = "6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77"
name = "Coffee"
category = "drinks"
item_id = 7

[[constraints]]
collection_id = 1
kind = "external_api"
method = "GET"
url = "https://api.example/{user_address}"
json_path = "$['it\\\\'s']"
operator = "exists"
value = true
ttl_seconds = 60

[[constraints]]
collection_id = 1
kind = "nft_holding"
holding_collection_id = 2
min = 1
ttl_seconds = 60
"""
    )
