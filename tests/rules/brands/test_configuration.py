"""Brand files: their meaning, and each fault with its line."""

from decimal import Decimal

import pytest

from ltzd.errors import FileRejected
from ltzd.rules.brands import configuration as brands
from ltzd.rules.brands.configuration import FIRST_CATALOGUE, Brand, Perk, parse_brand_file
from ltzd.rules.brands.value_types import MAX_ID
from ltzd.values import address_of

ID = "0x00000000000000000000000000000000000000aa"
HEAD = f"""\
[brand]
id = "{ID}"
name = "Demo"
domains = ["shop.example"]
"""


PERK_ID = "6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77"
PERK = f"""\
[[perks]]
id = "{PERK_ID}"
name = "Free coffee"
category = "drinks"
"""


SITE = """\
[site]
hosts = ["site.example"]
"""


def faults_of(text: str) -> list[str]:
    with pytest.raises(FileRejected) as caught:
        parse_brand_file(text, "demo.toml")
    return caught.value.faults


def test_a_short_file_has_the_defaults_of_the_specification() -> None:
    brand = parse_brand_file(HEAD, "demo.toml")

    assert brand.address == address_of(ID)
    assert brand.domains == ("shop.example",)
    assert brand.automation
    assert brand.duplicate_window_seconds == 60
    assert brand.bypass_sources == ("discord_manual_reward", "voice_claim", "gateway_event")
    assert {rule.type: rule.ltz for rule in brand.configured_events()} == FIRST_CATALOGUE
    survey = brand.rule_of("complete_survey")
    assert survey is not None
    assert (survey.ltz, survey.cooldown_hours, survey.claims_per_user) == (75, Decimal(24), 1)
    assert survey.max_total_claims is None


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/Argentina/Ushuaia", "Etc/GMT+12"])
def test_a_time_zone_is_known_by_its_plain_name(zone: str) -> None:
    assert parse_brand_file(f'{HEAD}time_zone = "{zone}"', "demo.toml").time_zone == zone


def test_utc_needs_no_database_of_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brands, "_time_zones", frozenset)
    assert parse_brand_file(HEAD + 'time_zone = "UTC"', "demo.toml").time_zone == "UTC"
    [fault] = faults_of(HEAD + 'time_zone = "Europe/Paris"')
    assert "by its plain name, such as UTC" in fault


def test_domains_are_kept_in_normal_form() -> None:
    text = HEAD.replace('"shop.example"', '"Shop.Example.", "bücher.example"')

    assert parse_brand_file(text, "demo.toml").domains == ("shop.example", "xn--bcher-kva.example")


def test_an_entry_replaces_the_catalogues_and_keeps_its_reward_unless_it_says_otherwise() -> None:
    brand = parse_brand_file(
        HEAD
        + """
        [[events]]
        type = "account_creation"
        cooldown_hours = 0.5
        max_claims_per_user = -1
        [[events]]
        type = "form_submit"
        reward = 0
        max_claims_per_user = 999999
        """,
        "demo.toml",
    )

    creation, form = brand.rule_of("account_creation"), brand.rule_of("form_submit")
    assert creation is not None
    assert form is not None
    assert (creation.ltz, creation.cooldown.total_seconds()) == (100, 1800)
    assert creation.claims_per_user is None
    assert (form.ltz, form.claims_per_user) == (0, None)


def test_disabled_and_unknown_types_have_no_rule_and_types_are_case_sensitive() -> None:
    brand = parse_brand_file(
        HEAD + '[[events]]\ntype = "form_submit"\nenabled = false\n', "demo.toml"
    )

    assert brand.rule_of("form_submit") is None
    assert brand.rule_of("purchase") is None
    assert brand.rule_of("Account_Creation") is None
    assert "form_submit" not in [rule.type for rule in brand.configured_events()]


def test_configured_events_are_the_catalogue_and_then_the_files_own() -> None:
    brand = parse_brand_file(
        HEAD
        + """
        [[events]]
        type = "custom_b"
        reward = 1
        [[events]]
        type = "form_submit"
        reward = 2
        [[events]]
        type = "custom_a"
        reward = 3
        """,
        "demo.toml",
    )

    types = [rule.type for rule in brand.configured_events()]
    assert types == [*FIRST_CATALOGUE, "custom_b", "custom_a"]


def test_a_brand_survives_being_stored_as_json() -> None:
    brand = parse_brand_file(
        HEAD + '[[events]]\ntype = "purchase"\nreward_per_dollar = 1.25\ncooldown_hours = 0\n',
        "demo.toml",
    )

    assert Brand.model_validate_json(brand.model_dump_json()) == brand


def test_a_site_multiplies_by_the_longest_streak_that_was_reached_and_rounds_down() -> None:
    brand = parse_brand_file(
        HEAD + SITE + "checkin_reward = 11\nmultipliers = { 7 = 1.5, 30 = 2 }", "demo.toml"
    )

    assert brand.site is not None
    assert [brand.site.reward_of(days) for days in (1, 6, 7, 29, 30, 400)] == [
        11,
        11,
        16,
        16,
        22,
        22,
    ]
    assert Brand.model_validate_json(brand.model_dump_json()) == brand


@pytest.mark.parametrize(
    ("addition", "fault"),
    [
        ('nam = "x"', "demo.toml:5: brand.nam: unknown key"),
        ('automation = "yes"', "demo.toml:5: brand.automation: must be true or false"),
        ("duplicate_window_seconds = -1", "demo.toml:5: brand.duplicate_window_seconds: must be"),
        ("duplicate_window_seconds = true", "demo.toml:5: brand.duplicate_window_seconds: must be"),
        ('time_zone = "Mars/Olympus"', "demo.toml:5: brand.time_zone: must be a time zone"),
        ('time_zone = "../etc"', "demo.toml:5: brand.time_zone: must be a time zone"),
        ('time_zone = "localtime"', "demo.toml:5: brand.time_zone: must be a time zone"),
        ('time_zone = "posixrules"', "demo.toml:5: brand.time_zone: must be a time zone"),
        ('time_zone = "posix/Europe/Paris"', "demo.toml:5: brand.time_zone: must be a time zone"),
        ('time_zone = "right/UTC"', "demo.toml:5: brand.time_zone: must be a time zone"),
        ('bypass_sources = "voice_claim"', "demo.toml:5: brand.bypass_sources: must be a list"),
        ("signed_bypass = 1", "demo.toml:5: brand.signed_bypass: must be true or false"),
        ("daily_mint_budget = -1", "demo.toml:5: brand.daily_mint_budget: must be at least"),
        ("daily_mint_budget = 5.0", "demo.toml:5: brand.daily_mint_budget: must be a whole number"),
        ('daily_mint_budget = "5"', "demo.toml:5: brand.daily_mint_budget: must be a whole number"),
        ("max_reward_per_event = -1", "demo.toml:5: brand.max_reward_per_event: must be"),
        ("max_new_wallets_per_hour = true", "demo.toml:5: brand.max_new_wallets_per_hour: must"),
        ("events_per_minute_per_ip = 2000000000000", "demo.toml:5: brand.events_per_minute_per_"),
        ("time_zone = 1", "demo.toml:5: brand.time_zone: must be text"),
        ("patience_seconds = 86401", "demo.toml:5: brand.patience_seconds: must be"),
        ("patience_seconds = -1", "demo.toml:5: brand.patience_seconds: must be"),
        ("patience_seconds = 1.5", "demo.toml:5: brand.patience_seconds: must be"),
        ("duplicate_window_seconds = 86401", "demo.toml:5: brand.duplicate_window_seconds: must"),
        ('bypass_sources = ["a", 1]', "demo.toml:5: brand.bypass_sources[1]: must be text"),
        (f'bypass_sources = ["{"a" * 501}"]', "demo.toml:5: brand.bypass_sources[0]: must have"),
        ("automation = {on = true}", "demo.toml:5: brand.automation: must be true or false"),
        ('webhook_url = "http://x.example"', "demo.toml:5: brand.webhook_url: must be an https"),
        ('webhook_url = "https://x.example:81"', "demo.toml:5: brand.webhook_url: must use port"),
        ('webhook_url = "https://10.0.0.1/"', "demo.toml:5: brand.webhook_url: must name its host"),
        ('webhook_url = "https://a@x.example"', "demo.toml:5: brand.webhook_url: must be a URL"),
        ('webhook_url = "https://x.example/é"', "demo.toml:5: brand.webhook_url: must be plain"),
        ('webhook_url = "ftp://x.example"', "demo.toml:5: brand.webhook_url: must be an http"),
        ("[[constraints]]", "demo.toml:5: constraints[0].kind: is missing"),
        ("[site]", "demo.toml:5: site.hosts: is missing"),
        ("site = 3", "demo.toml:5: brand.site: unknown key: give a [site] section"),
        ("[[site]]", "demo.toml:5: site: must be a section"),
        ("[site]\nhosts = []", "demo.toml:6: site.hosts: must not be empty"),
        (SITE + "checkin = 1", "demo.toml:7: site.checkin: unknown key"),
        (SITE + "checkin_reward = 1.5", "demo.toml:7: site.checkin_reward: must be a whole number"),
        (SITE + "checkin_reward = -1", "demo.toml:7: site.checkin_reward: must be at least"),
        (SITE + "multipliers = 2", "demo.toml:7: site.multipliers: must be a"),
        (SITE + "multipliers = { 0 = 2 }", "demo.toml:7: site.multipliers.0: must be a streak's"),
        (SITE + "multipliers = { 07 = 2 }", "demo.toml:7: site.multipliers.07: must be a streak's"),
        (SITE + "multipliers = { 7 = -1 }", "demo.toml:7: site.multipliers.7: must be at least"),
        (SITE + "milestones = { week = 5 }", "demo.toml:7: site.milestones.week: must be a streak"),
        (SITE + "milestones = { 7 = 0 }", "demo.toml:7: site.milestones.7: must be at least"),
        ("[sight]", "demo.toml:5: sight: unknown section"),
        ("[[events]]", "demo.toml:5: events[0].type: is missing"),
        ('[[events]]\ntype = "a b"', "demo.toml:6: events[0].type: must be 1 to 50 letters"),
        (f'[[events]]\ntype = "{"a" * 51}"', "demo.toml:6: events[0].type: must be 1 to 50"),
        ('[[events]]\ntype = "custom_x"', "demo.toml:5: events[0]: a type outside the first"),
        ('[[events]]\ntype = "x"\nreward = 1.0', "demo.toml:7: events[0].reward: must be"),
        ('[[events]]\ntype = "x"\nreward = -1', "demo.toml:7: events[0].reward: must be"),
        ('[[events]]\ntype = "x"\nreward = true', "demo.toml:7: events[0].reward: must be"),
        ('[[events]]\ntype = "purchase"', "demo.toml:5: events[0]: purchase needs reward_per"),
        ('[[events]]\ntype = "purchase"\nreward = 2', "demo.toml:5: events[0]: purchase is"),
        (
            '[[events]]\ntype = "form_submit"\nreward_per_dollar = 2',
            "demo.toml:5: events[0]: reward_per_dollar is for purchase only",
        ),
        (
            '[[events]]\ntype = "form_submit"\ncooldown_hours = nan',
            "demo.toml:7: events[0].cooldown_hours: must be a finite number",
        ),
        (
            '[[events]]\ntype = "form_submit"\ncooldown_hours = "24"',
            "demo.toml:7: events[0].cooldown_hours: must be a number",
        ),
        (
            '[[events]]\ntype = "form_submit"\nmax_claims_per_user = -2',
            "demo.toml:7: events[0].max_claims_per_user: must be",
        ),
        (
            '[[events]]\ntype = "form_submit"\nchannels = ["ok", ""]',
            "demo.toml:7: events[0].channels[1]: must have at least 1 character",
        ),
        (
            '[[events]]\ntype = "form_submit"\n[[events]]\ntype = "form_submit"',
            "demo.toml:8: events[1].type: form_submit is there already",
        ),
        (
            '[[events]]\ntype = "x"\nreward = 1\nrewrad = 2',
            "demo.toml:8: events[0].rewrad: unknown",
        ),
        ("[[events]]\ntype = 7", "demo.toml:6: events[0].type: must be text"),
        (
            '[[events]]\ntype = "form_submit"\nenabled = "no"',
            "demo.toml:7: events[0].enabled: must",
        ),
        (
            '[[events]]\ntype = "x"\nreward = 2000000000',
            "demo.toml:7: events[0].reward: must be at most 1000000000",
        ),
        (
            '[[events]]\ntype = "purchase"\nreward_per_dollar = 0',
            "demo.toml:7: events[0].reward_per_dollar: must be greater than 0",
        ),
        (
            '[[events]]\ntype = "form_submit"\ncooldown_hours = 90000',
            "demo.toml:7: events[0].cooldown_hours: must be at most 87600",
        ),
        (
            '[[events]]\ntype = "form_submit"\nmax_total_claims = -1',
            "demo.toml:7: events[0].max_total_claims: must be at least 0",
        ),
        (
            '[[events]]\ntype = "form_submit"\nurl_patterns = "/welcome"',
            "demo.toml:7: events[0].url_patterns: must be a list",
        ),
        ("x = \n", "demo.toml: no valid TOML: Invalid value (at line 5, column 5)"),
        ("x = 1\nx = 2", "demo.toml: no valid TOML: Cannot overwrite a value (at line 6, the end)"),
        ("x = " + "9" * 5_000, "demo.toml: no valid TOML: a number is too long"),
        ("x = " + "[" * 50_000, "demo.toml: no valid TOML:"),
    ],
)
def test_a_fault_has_its_file_line_and_field(addition: str, fault: str) -> None:
    [only] = faults_of(HEAD + addition)

    assert only.startswith(fault)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", '"0x00000000000000000000000000000000000000AA"'),
        ("id", '"0xaa"'),
        ("id", "170"),
        ("name", '""'),
        ("name", '"a\\u001bb"'),
        ("domains", "[]"),
        ("domains", '"shop.example"'),
        ("domains", '["shop.example", "SHOP.example"]'),
        ("domains", '["https://shop.example"]'),
        ("domains", '["10.0.0.1"]'),
        ("domains", '["com"]'),
        ("domains", '["*.shop.example"]'),
    ],
)
def test_a_bad_value_is_a_fault_of_its_field(field: str, value: str) -> None:
    lines = [f"{field} = {value}" if line.startswith(field) else line for line in HEAD.split("\n")]

    [fault] = faults_of("\n".join(lines))

    assert fault.startswith("demo.toml:")
    assert f" brand.{field}" in fault


def test_all_faults_are_reported_together() -> None:
    faults = faults_of(
        """
        [brand]
        nam = "Demo"
        [[events]]
        type = "custom_x"
        [[events]]
        type = "form_submit"
        reward = "ten"
        [site]
        """
    )

    assert faults == [
        "demo.toml:2: brand.id: is missing",
        "demo.toml:2: brand.name: is missing",
        "demo.toml:2: brand.domains: is missing",
        "demo.toml:4: events[0]: a type outside the first catalogue needs reward",
        "demo.toml:8: events[1].reward: must be a whole number",
        "demo.toml:9: site.hosts: is missing",
        "demo.toml:3: brand.nam: unknown key",
    ]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["demo.toml: brand: the section is missing"]),
        ("# nothing\n", ["demo.toml: brand: the section is missing"]),
        ("brand = 3", ["demo.toml:1: brand: must be a section"]),
        ("[[brand]]", ["demo.toml:1: brand: must be a section"]),
        (
            "events = 3",
            ["demo.toml: brand: the section is missing", "demo.toml:1: events: must be a list"],
        ),
        (HEAD + "[events]", ["demo.toml:5: events: must be a list"]),
        (HEAD + "events = []", ["demo.toml:5: brand.events: unknown key: give [[events]]"]),
        (HEAD + "perks = []", ["demo.toml:5: brand.perks: unknown key: give [[perks]] sections"]),
        (HEAD + "[perks]", ["demo.toml:5: perks: must be a list"]),
        (
            "perks = 3",
            ["demo.toml: brand: the section is missing", "demo.toml:1: perks: must be a list"],
        ),
        (f"perks = [3]\n{HEAD}", ["demo.toml:1: perks[0]: must be a section"]),
        (HEAD + "[brand.colour]", ["demo.toml: brand.colour: unknown key"]),
        (f"events = [3]\n{HEAD}", ["demo.toml:1: events[0]: must be a section"]),
    ],
)
def test_other_shapes_are_faults_too(text: str, faults: list[str]) -> None:
    reported = faults_of(text)

    assert len(reported) == len(faults)
    assert [line.startswith(fault) for line, fault in zip(reported, faults, strict=True)], reported


def test_lines_are_counted_as_editors_do() -> None:
    text = HEAD.replace("Demo", "De\u2028mo\x85")

    assert [fault.partition(": ")[0] for fault in faults_of(text + "nam = 1")] == [
        "demo.toml:3",
        "demo.toml:5",
    ]


def test_text_inside_a_value_is_not_read_as_a_line_of_the_file() -> None:
    text = HEAD.replace('"Demo"', '"""\nreward = 1\n[[events]]\n"""') + "daily_mint_budget = -1\n"

    assert "demo.toml:8: brand.daily_mint_budget: must be at least" in "\n".join(faults_of(text))


def test_a_brands_own_limits_are_read() -> None:
    brand = parse_brand_file(
        HEAD
        + """
        signed_bypass = true
        daily_mint_budget = 100000
        max_reward_per_event = 10000
        max_new_wallets_per_hour = 500
        events_per_minute_per_ip = 120
        """,
        "demo.toml",
    )

    assert brand.signed_bypass
    assert (brand.daily_mint_budget, brand.max_reward_per_event) == (100_000, 10_000)
    assert (brand.max_new_wallets_per_hour, brand.events_per_minute_per_ip) == (500, 120)


def test_webhooks_go_out_by_https_or_to_this_machine() -> None:
    for url in ("https://x.example/ltz?a=1", "http://127.0.0.1:9000/", "http://localhost:9000"):
        assert parse_brand_file(f'{HEAD}webhook_url = "{url}"', "demo.toml").webhook_url == url


def test_perks_are_collections_or_items_under_ids_in_lower_case() -> None:
    other = PERK.replace("6f1c", "0000")
    brand = parse_brand_file(
        HEAD + PERK.replace("6f1c", "6F1C") + f"collection_id = {MAX_ID}\n" + other + "item_id = 1",
        "demo.toml",
    )

    coffee, mug = brand.perks
    assert coffee == Perk(id=PERK_ID, name="Free coffee", category="drinks", collection_id=MAX_ID)
    assert (mug.collection_id, mug.item_id) == (None, 1)
    assert Brand.model_validate_json(brand.model_dump_json()) == brand


@pytest.mark.parametrize("section", ["perks", "constraints"])
def test_a_configuration_stored_without_a_section_is_read_with_its_defaults(section: str) -> None:
    brand = parse_brand_file(HEAD, "demo.toml")
    stored = brand.model_dump_json(exclude={section})

    assert section not in stored
    assert Brand.model_validate_json(stored) == brand


@pytest.mark.parametrize(
    ("line", "changed", "fault"),
    [
        (9, "", "demo.toml:5: perks[0]: give either collection_id or item_id"),
        (9, "collection_id = 1\nitem_id = 1", "demo.toml:5: perks[0]: give either"),
        (9, "collection_id = 0", "demo.toml:9: perks[0].collection_id: must be at least"),
        (9, "item_id = -1", "demo.toml:9: perks[0].item_id: must be at least 1"),
        (9, f"item_id = {MAX_ID + 1}", "demo.toml:9: perks[0].item_id: must be at most"),
        (9, "item_id = true", "demo.toml:9: perks[0].item_id: must be a whole number"),
        (9, 'collection_id = "1"', "demo.toml:9: perks[0].collection_id: must be a whole number"),
        (9, "collection_id = 1.0", "demo.toml:9: perks[0].collection_id: must be a whole number"),
        (6, 'id = "6f1c"', "demo.toml:6: perks[0].id: must be a UUID"),
        (6, f'id = "{{{PERK_ID}}}"', "demo.toml:6: perks[0].id: must be a UUID"),
        (6, "id = 7", "demo.toml:6: perks[0].id: must be text"),
        (6, "", "demo.toml:5: perks[0].id: is missing"),
        (7, 'name = ""', "demo.toml:7: perks[0].name: must have at least 1 character"),
        (7, 'name = "a\\u001bb"', "demo.toml:7: perks[0].name: must not hold control characters"),
        (8, "", "demo.toml:5: perks[0].category: is missing"),
        (8, 'category = "a"\ncost = 5', "demo.toml:9: perks[0].cost: unknown key"),
    ],
)
def test_a_perks_fault_is_named_with_its_line(line: int, changed: str, fault: str) -> None:
    lines = (HEAD + PERK + "collection_id = 1").split("\n")
    lines[line - 1] = changed

    [only] = faults_of("\n".join(lines))

    assert only.startswith(fault)


def test_no_two_perks_have_the_same_id() -> None:
    perk = PERK + "collection_id = 1\n"

    assert faults_of(HEAD + perk + perk.replace("6f1c", "6F1C")) == [
        f"demo.toml:11: perks[1].id: {PERK_ID} is there already"
    ]
