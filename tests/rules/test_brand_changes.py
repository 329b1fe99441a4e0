"""What applying a brand file changes, told before it is done."""

from ltzd.rules.brand_changes import changes
from ltzd.rules.brands import Brand, EventRule

FORM = EventRule(type="form_submit", reward=20)
SURVEY = EventRule(type="complete_survey", enabled=False)


def a_brand(*events: EventRule, name: str = "Demo") -> Brand:
    return Brand(id="0x" + "aa" * 20, name=name, domains=("shop.example",), events=events)


def test_between_equals_there_is_no_change() -> None:
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


def test_a_new_brand_shows_all_that_its_file_says() -> None:
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
