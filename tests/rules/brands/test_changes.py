"""The described changes are those that applying a brand file makes."""

from decimal import Decimal

import pytest

from ltzd.rules.brands.changes import changes
from ltzd.rules.brands.configuration import Brand, EventRule, Perk
from ltzd.rules.constraints.constraints import Constraint, ExternalApi, NftHolding

FORM = EventRule(type="form_submit", reward=20)
SURVEY = EventRule(type="complete_survey", enabled=False)
COFFEE = Perk(
    id="6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77", name="Coffee", category="drinks", collection_id=1
)
MUG = Perk(id="b5a7d9c2-3f60-4c1e-9a85-70d1e6c4f2ab", name="Mug", category="goods", item_id=1)


HOLDING = NftHolding(collection_id=1, kind="nft_holding", holding_collection_id=2)
MEMBERS = ExternalApi(
    collection_id=1,
    kind="external_api",
    url="https://api.example/{user_address}",
    json_path="$.allowed",
    operator="eq",
    value=True,
)


def a_brand(
    *events: EventRule,
    name: str = "Demo",
    perks: tuple[Perk, ...] = (),
    constraints: tuple[Constraint, ...] = (),
) -> Brand:
    return Brand(
        id="0x" + "aa" * 20,
        name=name,
        domains=("shop.example",),
        events=events,
        perks=perks,
        constraints=constraints,
    )


def test_equal_brands_have_no_changes() -> None:
    assert changes(a_brand(FORM), a_brand(FORM)) == []


def test_each_change_is_a_line() -> None:
    new = a_brand(
        FORM.model_copy(update={"reward": 30}), EventRule(type="rate_experience"), name="New"
    )

    assert changes(a_brand(FORM, SURVEY), new) == [
        "~ name: Demo -> New",
        "- event complete_survey",
        "~ event form_submit: reward 20 -> 30",
        "+ event rate_experience: all defaults",
    ]


def test_a_new_brand_shows_its_whole_file() -> None:
    brand = a_brand(FORM, SURVEY).model_copy(update={"daily_mint_budget": 5, "automation": False})

    assert changes(None, brand) == [
        f"+ brand {brand.id}: new",
        "+ name: Demo",
        "+ domains: [shop.example]",
        "+ automation: false",
        "+ daily_mint_budget: 5",
        "+ event form_submit: reward 20",
        "+ event complete_survey: enabled false",
    ]


def test_another_order_of_events_is_a_change_too() -> None:
    assert changes(a_brand(FORM, SURVEY), a_brand(SURVEY, FORM)) == ["~ events: in another order"]


def test_perks_are_described_by_their_ids() -> None:
    dearer = COFFEE.model_copy(update={"collection_id": None, "item_id": 2})

    assert changes(None, a_brand(perks=(MUG,)))[-1] == (
        f"+ perk {MUG.id}: name Mug, category goods, item_id 1"
    )
    assert changes(a_brand(perks=(COFFEE, MUG)), a_brand(FORM, perks=(dearer,))) == [
        "+ event form_submit: reward 20",
        f"- perk {MUG.id}",
        f"~ perk {COFFEE.id}: collection_id 1 -> none, item_id none -> 2",
    ]
    assert changes(a_brand(FORM, perks=(COFFEE, MUG)), a_brand(FORM, perks=(MUG, COFFEE))) == [
        "~ perks: in another order"
    ]


def test_constraints_are_described_by_their_collection_and_kind() -> None:
    longer = HOLDING.model_copy(update={"ttl_seconds": 90})
    elsewhere = HOLDING.model_copy(update={"holding_collection_id": 3})
    before = a_brand(constraints=(HOLDING,))

    assert changes(None, a_brand(constraints=(MEMBERS,)))[-1] == (
        "+ constraint on collection 1 external_api: url https://api.example/{user_address}, "
        "json_path $.allowed, operator eq, value true"
    )
    assert changes(before, a_brand(constraints=(longer,))) == [
        "~ constraint on collection 1 nft_holding: ttl_seconds 60 -> 90"
    ]
    assert changes(before, a_brand(constraints=(HOLDING, elsewhere))) == [
        "+ constraint on collection 1 nft_holding #2: holding_collection_id 3"
    ]
    assert changes(a_brand(constraints=(HOLDING, elsewhere)), before) == [
        "- constraint on collection 1 nft_holding #2"
    ]
    assert changes(
        a_brand(constraints=(HOLDING, MEMBERS)), a_brand(constraints=(MEMBERS, HOLDING))
    ) == ["~ constraints: in another order"]


@pytest.mark.parametrize(
    ("old", "new", "described"),
    [
        (True, 1, "true -> 1"),
        (1, True, "1 -> true"),
        (True, "true", 'true -> "true"'),
        (5, "5", '5 -> "5"'),
        (5, Decimal("5.5"), "5 -> 5.5"),
    ],
)
def test_a_value_of_another_type_is_a_change(old: object, new: object, described: str) -> None:
    before, after = (MEMBERS.model_copy(update={"value": value}) for value in (old, new))

    assert changes(a_brand(constraints=(before,)), a_brand(constraints=(after,))) == [
        f"~ constraint on collection 1 external_api: value {described}"
    ]
