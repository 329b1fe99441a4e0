"""Purchase constraints: the observations that satisfy one, and its section in a file."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ltzd.errors import FileRejected
from ltzd.rules.brands.configuration import Brand, parse_brand_file
from ltzd.rules.brands.toml_writer import toml_of
from ltzd.rules.constraints.chat_queries import ChatQuery, combine_verdicts
from ltzd.rules.constraints.constraints import (
    MOST_ON_ONE_COLLECTION,
    ChatLevel,
    ChatRole,
    ExternalApi,
    LtzBalance,
    NftHolding,
    fill_url,
    is_satisfied,
    question,
)
from ltzd.rules.constraints.json_paths import Json
from ltzd.values import LTZ, address_of

USER = address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed")
CHECKSUMMED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
URL = "https://api.example/check"
HEAD = """\
[brand]
id = "0x00000000000000000000000000000000000000aa"
name = "Demo"
domains = ["shop.example"]
[[constraints]]
"""
API = {
    "collection_id": "1",
    "kind": '"external_api"',
    "url": f'"{URL}"',
    "json_path": '"$.allowed"',
    "operator": '"eq"',
    "value": "true",
}


def an_api(operator: str, value: object = None, path: str = "$.x", **other: object) -> ExternalApi:
    return ExternalApi.model_validate(
        {
            "collection_id": 7,
            "kind": "external_api",
            "url": URL,
            "json_path": path,
            "operator": operator,
            "value": value,
            **other,
        }
    )


def a_file(**changed: str | None) -> str:
    """An `external_api` constraint, a field a line from line 6 on, without fields of None."""
    lines = {**API, **changed}
    return HEAD + "".join(f"{name} = {text}\n" for name, text in lines.items() if text is not None)


def faults_of(text: str) -> list[str]:
    with pytest.raises(FileRejected) as caught:
        parse_brand_file(text, "demo.toml")
    return caught.value.faults


ONE = Decimal("1.0")
TENTH = Decimal("0.1")


@pytest.mark.parametrize(
    ("operator", "value", "satisfied_by", "not_by"),
    [
        ("eq", True, [True], [False, 1, ONE, "true", None, [True], {}]),
        ("eq", False, [False], [True, 0, "", None, [], {}]),
        ("eq", 1, [1, ONE], [True, "1", 2, Decimal("1.000000000000000000000000001"), None]),
        ("eq", TENTH, [Decimal("0.10")], ["0.1", Decimal("0.1000000000000000055"), 0, None]),
        ("eq", 2**53 + 1, [2**53 + 1], [2**53, float(2**53)]),
        ("eq", "gold", ["gold"], ["Gold", "gold ", ["gold"], None, 0]),
        ("eq", "1", ["1"], [1, ONE]),
        ("ne", "banned", ["", "Banned", 0, False], ["banned", None, ["banned"], {"a": "banned"}]),
        ("ne", 1, [2, "1", True], [1, ONE, None]),
        ("gt", 1, [2, Decimal("1.0000000000000000000001"), 10**400], [1, ONE, 0, "2", True, None]),
        ("gte", 1, [1, ONE, 2], [Decimal("0.99999999999999999999"), "1", True, [2]]),
        ("lt", Decimal("-0.5"), [-1, Decimal("-1E+400")], [Decimal("-0.5"), 0, "-1", False, None]),
        ("lte", 0, [0, Decimal("-0.0"), -1], [TENTH, False, "", None]),
        ("in", ["a", 1, True], ["a", ONE, True], ["b", "1", 2, False, None, ["a"]]),
        ("in", [1], [1], [True]),
        ("exists", True, [0, False, "", [], {}], [None]),
        ("exists", None, [0], [None]),
        ("exists", False, [None], [0, False, "", [], {}]),
    ],
)
def test_each_operator_is_satisfied_by_its_values_only(
    operator: str, value: object, satisfied_by: list[Json], not_by: list[Json]
) -> None:
    constraint = an_api(operator, value)

    for observed in satisfied_by:
        assert is_satisfied(constraint, {"x": observed}), observed
    for observed in not_by:
        assert not is_satisfied(constraint, {"x": observed}), observed


@pytest.mark.parametrize("document", [{}, None, [], "x", {"y": True}, [{"x": True}]])
def test_a_missing_value_satisfies_only_the_operator_for_absence(document: Json) -> None:
    for operator, value in [("eq", True), ("ne", True), ("lt", 1), ("in", [True])]:
        assert not is_satisfied(an_api(operator, value), document)
    assert not is_satisfied(an_api("exists"), document)
    assert is_satisfied(an_api("exists", False), document)


def test_the_path_selects_the_value() -> None:
    constraint = an_api("eq", "admin", "$.user.roles[1]")

    assert is_satisfied(constraint, {"user": {"roles": ["member", "admin"]}})
    assert not is_satisfied(constraint, {"user": {"roles": ["admin"]}})
    assert is_satisfied(an_api("eq", 5, "$"), 5)


NUMBERS = st.integers(-(10**30), 10**30) | st.decimals(
    -(10**30), 10**30, allow_nan=False, places=20
)


@given(NUMBERS, NUMBERS)
def test_numbers_are_compared_exactly(observed: int | Decimal, wanted: int | Decimal) -> None:
    held = {
        operator: is_satisfied(an_api(operator, wanted), {"x": observed})
        for operator in ("eq", "ne", "gt", "gte", "lt", "lte")
    }

    assert held["eq"] == (observed == wanted)
    assert held["lt"] == (observed < wanted)
    assert held["gt"] == (not held["lte"])
    assert held["gte"] == (held["gt"] or held["eq"])
    assert held["lt"] == (not held["gte"])
    assert held["ne"] == (not held["eq"])


def test_holdings_and_balances_are_satisfied_from_their_least_amount_on() -> None:
    holding = NftHolding(collection_id=1, kind="nft_holding", holding_collection_id=2, min=2)
    balance = LtzBalance(collection_id=1, kind="ltz_balance", min=Decimal("0.5"))

    assert [is_satisfied(holding, count) for count in (0, 1, 2, 3)] == [False, False, True, True]
    assert is_satisfied(balance, LTZ // 2)
    assert not is_satisfied(balance, LTZ // 2 - 1)


def test_a_balance_is_exact_to_the_last_unit() -> None:
    balance = LtzBalance(
        collection_id=1, kind="ltz_balance", min=Decimal("999999999999.999999999999999999")
    )

    assert balance.units == 10**30 - 1
    assert Brand.model_validate_json(a_brand(balance).model_dump_json()).constraints == (balance,)


def a_brand(*constraints: Any) -> Brand:
    brand = parse_brand_file(a_file(), "demo.toml")
    return brand.model_copy(update={"constraints": constraints})


def test_a_url_is_filled_with_the_checksummed_address_and_the_collection() -> None:
    constraint = an_api(
        "exists",
        url="https://api.example/{collection_id}/%7Bx%7D?u={user_address}&again={user_address}",
    )

    assert fill_url(constraint, USER) == (
        f"https://api.example/7/%7Bx%7D?u={CHECKSUMMED}&again={CHECKSUMMED}"
    )
    assert question(constraint, USER) == {"user_address": CHECKSUMMED, "collection_id": 7}


GUILD, ROLE = "197038439483310086", "197038439483310087"


def a_role(**changed: object) -> ChatRole:
    fields = {"collection_id": 1, "kind": "chat_role", "guild_id": GUILD, "role_id": ROLE}
    return ChatRole.model_validate(fields | changed)


def test_only_a_member_with_the_role_satisfies_the_constraint() -> None:
    assert is_satisfied(a_role(), [GUILD, ROLE])
    others: list[Json] = [None, [], [GUILD], [ROLE[:-1]], ROLE, {ROLE: True}, True, int(ROLE)]
    for observed in others:
        assert not is_satisfied(a_role(), observed), observed


def test_the_role_that_every_member_has_is_the_guild_itself() -> None:
    everyone = a_role(role_id=GUILD)

    assert is_satisfied(everyone, [])
    assert not is_satisfied(everyone, None)


def test_a_level_is_satisfied_from_its_least_on() -> None:
    level = ChatLevel(collection_id=1, kind="chat_level", guild_id=GUILD, min=5)

    assert [is_satisfied(level, observed) for observed in (4, 5, 6)] == [False, True, True]
    others: list[Json] = [None, "6", Decimal(6), [6]]
    assert not any(is_satisfied(level, observed) for observed in others)


def test_a_file_declares_chat_constraints_and_shows_them_again() -> None:
    brand = parse_brand_file(
        f"""{HEAD}collection_id = 1
kind = "chat_role"
guild_id = "{GUILD}"
role_id = {ROLE}
[[constraints]]
collection_id = 1
kind = "chat_level"
guild_id = "{GUILD}"
min = 5
ttl_seconds = 600
""",
        "demo.toml",
    )

    role, level = brand.constraints
    assert role == a_role()
    assert isinstance(level, ChatLevel)
    assert (level.guild_id, level.min, level.ttl_seconds) == (GUILD, 5, 600)
    assert parse_brand_file(toml_of(brand), "again.toml") == brand
    assert Brand.model_validate_json(brand.model_dump_json()) == brand


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        (
            'kind = "chat_role"',
            ["5: constraints[0].guild_id: is missing", "5: constraints[0].role_id: is missing"],
        ),
        (
            f'kind = "chat_level"\nguild_id = "{GUILD}"',
            ["5: constraints[0].min: is missing"],
        ),
        (
            f'kind = "chat_level"\nguild_id = "{GUILD}"\nmin = 0',
            ["9: constraints[0].min: must be at least 1"],
        ),
        (
            f'kind = "chat_level"\nguild_id = "{GUILD}"\nmin = 1\nrole_id = "{ROLE}"',
            ["10: constraints[0].role_id: is for chat_role, not for chat_level"],
        ),
        (
            f'kind = "chat_role"\nguild_id = "{GUILD}"\nrole_id = "{ROLE}"\nmin = 1',
            [
                (
                    "10: constraints[0].min: is for nft_holding, ltz_balance and chat_level, "
                    "not for chat_role"
                )
            ],
        ),
        (
            (
                f'kind = "external_api"\nguild_id = "{GUILD}"\nurl = "{URL}"\njson_path = "$"\n'
                'operator = "exists"'
            ),
            ["8: constraints[0].guild_id: is for chat_role and chat_level, not for external_api"],
        ),
    ],
)
def test_the_faults_of_a_chat_constraint_are_named_with_their_lines(
    lines: str, faults: list[str]
) -> None:
    reported = faults_of(f"{HEAD}collection_id = 1\n{lines}\n")

    assert reported == [f"demo.toml:{fault}" for fault in faults]


@pytest.mark.parametrize(
    "wrong",
    [
        '""',
        '"shop"',
        '"1234567890123456"',
        '"123456789012345678901"',
        '"18446744073709551616"',
        '"197038439483310086 "',
        '"٠١٢٣٤٥٦٧٨٩٠١٢٣٤٥٦٧"',
        '"../197038439483310086"',
        "-197038439483310086",
        "197038439483310086.0",
        "true",
        '["197038439483310086"]',
    ],
)
def test_a_malformed_platform_id_is_a_fault(wrong: str) -> None:
    section = f'collection_id = 1\nkind = "chat_role"\nguild_id = {wrong}\nrole_id = "{ROLE}"\n'

    assert faults_of(HEAD + section) == [
        "demo.toml:8: constraints[0].guild_id: must be an id of the chat platform: 17 to 20 digits"
    ]


def test_equal_questions_are_equal_as_bytes_and_others_are_not() -> None:
    question = ChatQuery(constraint=a_role(), accounts=("1", "2"))
    again = ChatQuery(constraint=a_role(), accounts=("1", "2"))
    others = [
        ChatQuery(constraint=a_role(), accounts=("1",)),
        ChatQuery(constraint=a_role(ttl_seconds=61), accounts=("1", "2")),
        ChatQuery(
            constraint=ChatLevel(collection_id=1, kind="chat_level", guild_id=GUILD, min=1),
            accounts=("1", "2"),
        ),
    ]

    assert question.as_bytes() == again.as_bytes()
    assert question.as_bytes() not in [other.as_bytes() for other in others]
    for query in (question, *others):
        assert ChatQuery.from_bytes(query.as_bytes()) == query


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ([True, None, False], True),
        ([False, True], True),
        ([False, None], None),
        ([None], None),
        ([False, False], False),
        ([], False),
    ],
)
def test_one_satisfying_account_is_enough_and_an_unanswered_one_leaves_the_result_open(
    verdicts: list[bool | None], together: bool | None
) -> None:
    assert combine_verdicts(verdicts) is together


def test_a_file_declares_constraints_with_their_defaults() -> None:
    brand = parse_brand_file(
        a_file()
        + """
        [[constraints]]
        collection_id = 1
        kind = "nft_holding"
        holding_collection_id = 2
        [[constraints]]
        collection_id = 3
        kind = "ltz_balance"
        min = 0.5
        ttl_seconds = 5
        """,
        "demo.toml",
    )

    api, holding, balance = brand.constraints
    assert isinstance(api, ExternalApi)
    assert (api.method, api.ttl_seconds, api.value, api.path) == ("GET", 60, True, ("allowed",))
    assert isinstance(holding, NftHolding)
    assert (holding.holding_collection_id, holding.min, holding.ttl_seconds) == (2, 1, 60)
    assert isinstance(balance, LtzBalance)
    assert (balance.units, balance.ttl_seconds) == (LTZ // 2, 5)
    assert brand.constraints_on(1) == (api, holding)
    assert brand.constraints_on(2) == ()


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"kind": None}, "demo.toml:5: constraints[0].kind: is missing"),
        ({"kind": '"chat"'}, "demo.toml:7: constraints[0].kind: must be one of external_api, nft_"),
        ({"kind": "7"}, "demo.toml:7: constraints[0].kind: must be one of"),
        ({"kind": "[]"}, "demo.toml:7: constraints[0].kind: must be one of"),
        ({"collection_id": None}, "demo.toml:5: constraints[0].collection_id: is missing"),
        ({"collection_id": "0"}, "demo.toml:6: constraints[0].collection_id: must be at least"),
        (
            {"collection_id": '"1"'},
            "demo.toml:6: constraints[0].collection_id: must be a whole number",
        ),
        ({"method": '"get"'}, "demo.toml:12: constraints[0].method: must be 'GET' or 'POST'"),
        ({"method": '"DELETE"'}, "demo.toml:12: constraints[0].method: must be 'GET' or 'POST'"),
        ({"url": None}, "demo.toml:5: constraints[0].url: is missing"),
        ({"json_path": '"allowed"'}, "demo.toml:9: constraints[0].json_path: must begin with $"),
        ({"json_path": '"$[*]"'}, "demo.toml:9: constraints[0].json_path: makes no sense after $"),
        ({"json_path": None}, "demo.toml:5: constraints[0].json_path: is missing"),
        ({"operator": '"=="'}, "demo.toml:10: constraints[0].operator: must be 'eq', 'ne', 'gt',"),
        ({"operator": None}, "demo.toml:5: constraints[0].operator: is missing"),
        ({"value": None}, "demo.toml:5: constraints[0].value: is missing"),
        ({"value": "[true]"}, "demo.toml:11: constraints[0].value: must not be a list for eq"),
        ({"value": "nan"}, "demo.toml:11: constraints[0].value: must be a number of at most 78"),
        ({"value": "-inf"}, "demo.toml:11: constraints[0].value: must be a number of at most 78"),
        ({"value": "1e79"}, "demo.toml:11: constraints[0].value: must be a number of at most 78"),
        ({"value": "0e999"}, "demo.toml:11: constraints[0].value: must be a number of at most 78"),
        ({"value": "1" * 79}, "demo.toml:11: constraints[0].value: must be a number of at most"),
        ({"value": "2026-01-01"}, "demo.toml:11: constraints[0].value: must be true, false, a num"),
        ({"value": "{a = 1}"}, "demo.toml:11: constraints[0].value: must be true, false, a number"),
        ({"value": '{decimal = "1"}'}, "demo.toml:11: constraints[0].value: must be true, false"),
        ({"value": '"a\\u001bb"'}, "demo.toml:11: constraints[0].value: must not hold control"),
        ({"value": f'"{"a" * 501}"'}, "demo.toml:11: constraints[0].value: must have at most 500"),
        (
            {"operator": '"gt"', "value": '"5"'},
            "demo.toml:11: constraints[0].value: must be a number for gt",
        ),
        ({"operator": '"gte"'}, "demo.toml:11: constraints[0].value: must be a number for gte"),
        ({"operator": '"lt"'}, "demo.toml:11: constraints[0].value: must be a number for lt"),
        ({"operator": '"lte"'}, "demo.toml:11: constraints[0].value: must be a number for lte"),
        (
            {"operator": '"ne"', "value": "[1]"},
            "demo.toml:11: constraints[0].value: must not be a list for ne",
        ),
        ({"operator": '"in"'}, "demo.toml:11: constraints[0].value: must be a list for in"),
        (
            {"operator": '"in"', "value": "[]"},
            "demo.toml:11: constraints[0].value: must be a list of 1 to 100",
        ),
        (
            {"operator": '"in"', "value": "[[1]]"},
            "demo.toml:11: constraints[0].value: must be true, false, a number or text, or a list",
        ),
        (
            {"operator": '"exists"', "value": "1"},
            "demo.toml:11: constraints[0].value: must be true or false for exists",
        ),
        ({"ttl_seconds": "0"}, "demo.toml:12: constraints[0].ttl_seconds: must be at least"),
        ({"ttl_seconds": "86401"}, "demo.toml:12: constraints[0].ttl_seconds: must be at most"),
        (
            {"ttl_seconds": "1.5"},
            "demo.toml:12: constraints[0].ttl_seconds: must be a whole number",
        ),
        (
            {"min": "1"},
            (
                "demo.toml:12: constraints[0].min: "
                "is for nft_holding, ltz_balance and chat_level, not for external_api"
            ),
        ),
        ({"colour": "1"}, "demo.toml:12: constraints[0].colour: unknown key"),
    ],
)
def test_a_constraints_fault_is_named_with_its_line(
    changed: dict[str, str | None], fault: str
) -> None:
    [only] = faults_of(a_file(**changed))

    assert only.startswith(fault)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "demo.toml:5: constraints[0].min: is missing"),
        ("min = 0", "demo.toml:8: constraints[0].min: must be greater than 0"),
        ('min = "5"', "demo.toml:8: constraints[0].min: must be a number"),
        ("min = true", "demo.toml:8: constraints[0].min: must be a number"),
        ("min = nan", "demo.toml:8: constraints[0].min: must be a finite number"),
        ("min = 1000000000001", "demo.toml:8: constraints[0].min: must be at most"),
        ("min = 0.0000000000000000001", "demo.toml:8: constraints[0].min: decimal input should"),
    ],
)
def test_the_fault_of_a_balance_is_named_with_its_line(line: str, fault: str) -> None:
    [only] = faults_of(HEAD + f'collection_id = 1\nkind = "ltz_balance"\n{line}\n')

    assert only.startswith(fault)


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        ("", ["demo.toml:5: constraints[0].holding_collection_id: is missing"]),
        (
            "holding_collection_id = 1\nmin = 0.5",
            ["demo.toml:9: constraints[0].min: must be a whole number"],
        ),
        (
            'holding_collection_id = 1\nurl = "https://a.example"\nvalue = 1',
            [
                "demo.toml:9: constraints[0].url: is for external_api, not for nft_holding",
                "demo.toml:10: constraints[0].value: is for external_api, not for nft_holding",
            ],
        ),
    ],
)
def test_the_faults_of_a_holding_are_named_with_their_lines(lines: str, faults: list[str]) -> None:
    assert faults_of(HEAD + f'collection_id = 1\nkind = "nft_holding"\n{lines}\n') == faults


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("api.example/check", "must be an http or https URL"),
        ("ftp://api.example/", "must be an http or https URL"),
        ("http://api.example/", "must be an https URL"),
        ("https://{user_address}.example/", "may hold {…} only in its path or query"),
        ("https://{user_address}@api.example/", "may hold {…} only in its path or query"),
        ("https://api.example:{collection_id}/", "may hold {…} only in its path or query"),
        ("{user_address}://api.example/", "must be an http or https URL"),
        ("https://api.example/{user}", "may hold no braces but those of"),
        ("https://api.example/{}", "may hold no braces but those of"),
        ("https://api.example/{{user_address}}", "may hold no braces but those of"),
        ("https://api.example/}", "may hold no braces but those of"),
        ("https://api.example/#{user_address}", "must not have a fragment"),
        ("https://ann:pw@api.example/", "must be a URL with a host and without a user name"),
        ("https:///check", "must be a URL with a host"),
        ("https://api.example:8443/", "must use port 443"),
        ("https://api.example:99999/", "must be a valid URL"),
        ("https://93.184.216.34/", "must name its host, not give an IP address"),
        ("https://10.0.0.1/", "must name its host, not give an IP address"),
        ("https://127.1/", "must name its host, not give an IP address"),
        ("https://2130706433/", "must name its host, not give an IP address"),
        ("https://0x7f.1/", "must name its host, not give an IP address"),
        ("https://[::ffff:127.0.0.1]/", "must name its host, not give an IP address"),
        ("https://[fe80::1%25eth0]/", "must name its host, not give an IP address"),
        ("https://bücher.example/", "must be plain ASCII"),
        ("https://api.example/é", "must be plain ASCII"),
        ("https://api.example/a b", "must not hold spaces, control characters or backslashes"),
        ("https://api.example\\\\@b.example/", "must not hold spaces, control characters or"),
        ("https://api.example/\\r\\nX: 1", "must not hold spaces, control characters or"),
        ("https://api.example/" + "a" * 2048, "must have at most 2048 characters"),
    ],
)
def test_a_forbidden_url_is_a_fault(url: str, reason: str) -> None:
    [fault] = faults_of(a_file(url=f'"{url}"'))

    assert fault.startswith(f"demo.toml:8: constraints[0].url: {reason}")


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example",
        "https://API.example:443/a?b={user_address}",
        "http://localhost:8080/{collection_id}",
        "http://api.localhost:8080/",
        "http://127.0.0.1:8080/",
        "http://[::1]:8080/",
    ],
)
def test_https_is_allowed_and_localhost_in_a_dev_instance(url: str) -> None:
    assert an_api("exists", url=url).url == url


@pytest.mark.parametrize("value", [True, 1, Decimal("1.50"), "1.5", "x", ("a", Decimal("0.1"), 2)])
def test_a_value_keeps_its_type_when_it_is_stored(value: object) -> None:
    constraint = an_api("in" if isinstance(value, tuple) else "eq", value)

    stored = ExternalApi.model_validate_json(constraint.model_dump_json())

    assert stored == constraint
    assert repr(stored.value) == repr(value)


def test_true_in_place_of_1_is_another_constraint() -> None:
    assert an_api("eq", True) != an_api("eq", 1)
    assert an_api("in", [True]) != an_api("in", [1])
    assert an_api("eq", 1) == an_api("eq", ONE)
    assert hash(an_api("eq", 1)) == hash(an_api("eq", ONE))


def test_a_duplicate_constraint_is_a_fault() -> None:
    again = a_file().removeprefix(HEAD)

    assert faults_of(a_file() + "[[constraints]]\n" + again) == [
        "demo.toml:5: constraints: entry 2 repeats an earlier one"
    ]


def test_the_number_of_constraints_of_a_collection_is_limited() -> None:
    entries = [
        f'[[constraints]]\ncollection_id = 1\nkind = "ltz_balance"\nmin = {least}\n'
        for least in range(1, MOST_ON_ONE_COLLECTION + 1)
    ]

    brand = parse_brand_file(a_file(collection_id="2") + "".join(entries), "demo.toml")
    assert len(brand.constraints_on(1)) == MOST_ON_ONE_COLLECTION
    assert faults_of(a_file() + "".join(entries)) == [
        "demo.toml:5: constraints: collection 1 has more than 10"
    ]


def test_all_faults_of_all_constraints_are_reported_together() -> None:
    faults = faults_of(a_file(value='"\\u0000"', url='"x"') + "[[constraints]]\nmin = 1\n")

    assert [fault.split(": ")[1] for fault in faults] == [
        "constraints[0].url",
        "constraints[0].value",
        "constraints[1].kind",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("constraints = [3]\n" + HEAD, "demo.toml:1: constraints[0]: must be a section"),
        (HEAD.replace("[[constraints]]", "[constraints]"), "demo.toml:5: constraints: must be a"),
        (
            HEAD.replace("[[constraints]]", "constraints = []"),
            "demo.toml:5: brand.constraints: unknown key: give [[constraints]] sections",
        ),
    ],
)
def test_other_shapes_are_faults_too(text: str, fault: str) -> None:
    text = text if "constraints = [3]" not in text else text.replace("[[constraints]]", "")

    [only] = faults_of(text)

    assert only.startswith(fault)


def test_a_program_cannot_pass_the_stored_form_of_a_decimal() -> None:
    with pytest.raises(ValidationError):
        an_api("eq", {"decimal": "1"})
