"""`ltzd brand list` and `ltzd brand show` print everything that is in force, and no key."""

from pathlib import Path
from typing import Any

import pytest

from ltzd.rules.brands.configuration import parse_brand_file
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands import records as brand_records
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import address_of, iso
from tests.support.commands import Outcome, ltzd

ID = "0x00000000000000000000000000000000000000aa"
OTHER_ID = "0x00000000000000000000000000000000000000bb"
ADDRESS = address_of(ID)
BRAND = f"""\
[brand]
id = "{ID}"
name = 'The "[red]corner" shop'
domains = ["shop.example", "bücher.example"]
bypass_sources = []
signed_bypass = true
daily_mint_budget = 5000

[[events]]
type = "purchase"
reward_per_dollar = 1.25
cooldown_hours = 0.5
max_claims_per_user = -1

[[events]]
type = "form_submit"
channels = ['a\\b', "c"]

[[constraints]]
collection_id = 1
kind = "external_api"
url = "https://api.example/{{user_address}}"
json_path = "$['it\\\\'s']"
operator = "in"
value = [true, 1.5, "1.5"]

[[constraints]]
collection_id = 2
kind = "ltz_balance"
min = 0.5
"""


class Shop:
    def __init__(self, data_dir: Path, db: Connection) -> None:
        self.sealer = Sealer.from_file(data_dir / "master.key")
        self._data_dir, self._db = data_dir, db

    async def add(self, text: str = BRAND) -> brand_keys.NewKeys:
        applied = await brands.apply(self._db, parse_brand_file(text, "shop.toml"), self.sealer)
        assert applied.keys is not None
        return applied.keys

    async def ltzd(self, *arguments: object) -> Outcome:
        return await ltzd(*arguments, "--data-dir", self._data_dir)


@pytest.fixture
def shop(data_dir: Path, db: Connection) -> Shop:
    return Shop(data_dir, db)


async def test_the_list_is_a_table_for_people_and_json_for_programs(
    shop: Shop, db: Connection
) -> None:
    await shop.add()
    await shop.add(BRAND.replace(ID, OTHER_ID).replace("The", "Another"))
    await brand_records.switch(db, ADDRESS, "paused", on=True)

    as_json = await shop.ltzd("brand", "list", "--json")
    shown = await shop.ltzd("brand", "list")

    records = await brand_records.list_all(db)
    assert as_json.json == [
        {
            "id": ID,
            "name": 'The "[red]corner" shop',
            "domains": ["shop.example", "xn--bcher-kva.example"],
            "state": "paused",
            "revision": 3,
            "updatedAt": iso(records[0].updated_at),
        },
        {
            "id": OTHER_ID,
            "name": 'Another "[red]corner" shop',
            "domains": ["shop.example", "xn--bcher-kva.example"],
            "state": "active",
            "revision": 2,
            "updatedAt": iso(records[1].updated_at),
        },
    ]
    head, first, second = shown.out.splitlines()
    assert head.split() == ["id", "name", "domains", "state", "revision", "updated"]
    assert ID in first
    assert 'The "[red]corner" shop' in first
    assert "shop.example xn--bcher-kva.example" in first
    assert "active" in second


async def test_where_there_is_no_brand_the_list_says_how_to_make_one(shop: Shop) -> None:
    as_json, shown = await shop.ltzd("brand", "list", "--json"), await shop.ltzd("brand", "list")

    assert as_json.json == []
    assert (shown.code, shown.out) == (0, "")
    assert shown.err == "There is no brand yet: `ltzd brand apply FILE` creates one.\n"


async def test_applying_what_show_printed_changes_nothing(
    shop: Shop, db: Connection, tmp_path: Path
) -> None:
    await shop.add()
    await brand_keys.rotate(db, ADDRESS, "security_key", shop.sealer, revoke=False)
    await brand_records.switch(db, ADDRESS, "paused", on=True)
    revision = await brands.latest_revision(db)

    shown = await shop.ltzd("brand", "show", ID)
    file = tmp_path / "shown.toml"
    file.write_text(shown.out)
    applied = await shop.ltzd("brand", "apply", file)

    assert (applied.code, applied.out) == (0, "")
    assert applied.err.splitlines()[0] == "nothing changes"
    assert await brands.latest_revision(db) == revision


async def test_show_tells_switches_ages_and_dns_records_and_no_key(
    shop: Shop, db: Connection
) -> None:
    keys = await shop.add()
    rotation = await brand_keys.rotate(db, ADDRESS, "webhook_secret", shop.sealer, revoke=False)
    await brand_records.switch(db, ADDRESS, "disabled", on=True)
    (record,) = await brand_records.list_all(db)
    assert record.disabled_at is not None
    assert rotation.previous_until is not None

    shown = await shop.ltzd("brand", "show", ID)
    as_json = await shop.ltzd("brand", "show", ID, "--json")

    value = f"brand_id={ID};api_key={keys.verification_token}"
    assert f'#   _ltz.shop.example  TXT  "{value}"\n' in shown.out
    assert (
        f"# Disabled since {iso(record.disabled_at)}: `ltzd brand enable {ID}` changes that."
        in shown.out
    )
    assert f"earlier keys remain valid until {iso(rotation.previous_until)}\n" in shown.out
    assert "Events of the first catalogue count too, in LTZ: account_creation 100, " in shown.out
    facts = as_json.json
    assert facts["state"] == "disabled"
    assert facts["disabledAt"] == iso(record.disabled_at)
    assert facts["pausedAt"] is None
    assert list(facts["keys"]) == ["securityKey", "apiKey", "webhookSecret", "verificationToken"]
    assert facts["keys"]["webhookSecret"]["retiredUntil"] == [iso(rotation.previous_until)]
    assert facts["keys"]["apiKey"]["retiredUntil"] == []
    assert facts["dns"][1] == {
        "name": "_ltz.xn--bcher-kva.example",
        "type": "TXT",
        "value": value,
    }
    assert facts["configuration"]["events"][0]["reward_per_dollar"] == 1.25
    query, balance = facts["configuration"]["constraints"]
    assert query["value"] == [True, 1.5, "1.5"]
    assert balance == {"collection_id": 2, "kind": "ltz_balance", "min": 0.5, "ttl_seconds": 60}
    secret = [keys.security_key, keys.api_key, keys.webhook_secret, rotation.key]
    for text in (shown.out, shown.err, as_json.out, as_json.err):
        assert [key for key in secret if key in text] == []


async def test_a_brand_may_be_named_by_its_id_or_by_a_name_that_no_other_has(shop: Shop) -> None:
    await shop.add()
    await shop.add(BRAND.replace(ID, OTHER_ID))

    async def id_shown(text: str) -> Any:
        return (await shop.ltzd("brand", "show", text, "--json")).json["id"]

    assert await id_shown(ID) == ID
    assert await id_shown("0X" + ID[2:].upper()) == ID
    ambiguous = await shop.ltzd("brand", "show", 'The "[red]corner" shop')
    assert (ambiguous.code, ambiguous.out) == (1, "")
    assert ambiguous.err == (
        """ltzd: 2 brands have the name 'The "[red]corner" shop'; """
        f"give an id: {ID}, {OTHER_ID}.\n"
    )
    await shop.add(BRAND.replace(ID, "0x" + "cc" * 20).replace("The", "A"))
    assert await id_shown('A "[red]corner" shop') == "0x" + "cc" * 20


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("disable",),
        ("enable",),
        ("pause",),
        ("resume",),
        ("rotate-key", "--key", "api_key"),
    ],
)
async def test_an_unknown_brand_is_a_sentence_that_names_it(
    shop: Shop, command: tuple[str, ...]
) -> None:
    verb, *options = command

    for text in ("no\nbody", OTHER_ID):
        done = await shop.ltzd("brand", verb, text, *options)
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            f"ltzd: No brand has the id or the name {text!r}; `ltzd brand list` shows all.\n"
        )


async def test_a_brand_of_another_version_is_listed_and_cannot_be_shown(
    shop: Shop, db: Connection
) -> None:
    await shop.add()
    await db.execute("""UPDATE brands SET configuration = configuration || '{"novelty": 1}'""")

    listed = await shop.ltzd("brand", "list", "--json")
    shown = await shop.ltzd("brand", "show", ID)

    assert listed.json[0]["domains"][0] == "shop.example"
    assert (shown.code, shown.out) == (1, "")
    assert "apply the brand's file again" in shown.err
