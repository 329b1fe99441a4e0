"""`ltzd brand apply` applies exactly the changes shown, all or none, and names every fault."""

import asyncio
import itertools
import json
import stat
import sys
from pathlib import Path

import pytest

from ltzd.cli.brand import apply as brand_apply
from ltzd.rules.brands.configuration import Brand, parse_brand_file
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands import records as brand_records
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address, address_of
from tests.support.commands import begin_ltzd, ltzd, ltzd_apart
from tests.support.secret_files import write_secret
from tests.support.waiting import until

EXAMPLE = Path(__file__).parents[2] / "config" / "brand.example.toml"
ID = "0x00000000000000000000000000000000000000aa"
ADDRESS = address_of(ID)
BRAND = f"""\
[brand]
id = "{ID}"
name = "Demo"
domains = ["shop.example"]
"""
CAREFUL = BRAND + "signed_bypass = true\ndaily_mint_budget = 1000\n"
"""A file without warnings."""


def a_brand_file(folder: Path, text: str | bytes = CAREFUL) -> Path:
    path = folder / "demo.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


async def test_a_new_brand_prints_its_keys_once_and_then_its_changes(
    tmp_path: Path, data_dir: Path, db: Connection
) -> None:
    file = a_brand_file(tmp_path)

    first = await ltzd("brand", "apply", file, "--data-dir", data_dir)
    again = await ltzd("brand", "apply", file, "--data-dir", data_dir)
    a_brand_file(tmp_path, CAREFUL.replace("Demo", "New"))
    changed = await ltzd("brand", "apply", file, "--data-dir", data_dir)

    keys = first.json
    assert list(keys) == ["brandId", "securityKey", "apiKey", "webhookSecret", "verificationToken"]
    assert first.err.startswith(f"+ brand {ID}: new\n+ name: Demo\n+ domains: [shop.example]\n")
    assert (again.code, again.out, again.err) == (0, "", "nothing changes\n")
    assert (changed.code, changed.out, changed.err) == (0, "", "~ name: Demo -> New\n")
    brand = parse_brand_file(file.read_text(), "demo.toml")
    assert await brands.load(db, ADDRESS) == brand
    sealer = Sealer.from_file(data_dir / "master.key")
    (stored,) = await brand_keys.secrets_of(db, ADDRESS, "security_key", sealer)
    assert stored.text == keys["securityKey"]


@pytest.mark.parametrize("command", ["apply", "rotate-key"])
async def test_keys_that_go_into_a_file_are_for_nobody_else(
    tmp_path: Path, data_dir: Path, command: str
) -> None:
    arguments = ["brand", "apply", str(a_brand_file(tmp_path))]
    if command == "rotate-key":
        await ltzd(*arguments, "--data-dir", data_dir)
        arguments = ["brand", "rotate-key", ID, "--key", "api_key"]
    kept = tmp_path / "keys.json"
    with kept.open("wb") as file:
        kept.chmod(0o644)
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ltzd", *arguments, "--data-dir", str(data_dir)),
            stdout=file,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await asyncio.wait_for(done.communicate(), 60)

    assert done.returncode == 0, errors.decode()
    assert "apiKey" in json.loads(kept.read_text())
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert b"its mode is 0600 now" in errors


async def test_a_dry_run_shows_the_changes_and_makes_none(data_dir: Path, db: Connection) -> None:
    outcome = await ltzd("brand", "apply", EXAMPLE, "--dry-run", "--data-dir", data_dir)

    assert outcome.code == 0, outcome.err
    assert "+ daily_mint_budget: 100000" in outcome.out
    assert "+ event purchase: signed true, reward_per_dollar 2, cooldown_hours 0" in outcome.out
    assert await brands.latest_revision(db) == 0


async def test_a_dry_run_is_refused_as_the_change_itself_would_be(
    tmp_path: Path, data_dir: Path, db: Connection
) -> None:
    site = '[site]\nhosts = ["shop.example"]\n'
    file, where = a_brand_file(tmp_path, CAREFUL + site), ("--data-dir", data_dir)
    assert (await ltzd("brand", "apply", file, *where)).code == 0
    a_brand_file(tmp_path, CAREFUL.replace(ID, ID[:-2] + "bb") + site)

    dry = await ltzd("brand", "apply", file, "--dry-run", *where)
    applied = await ltzd("brand", "apply", file, *where)

    for outcome in (dry, applied):
        assert outcome.code == 1, outcome.err
        assert f"site.hosts: shop.example is the site of brand {ID} already" in outcome.err
    assert len(await brand_records.list_all(db)) == 1


async def test_a_file_that_lets_anybody_mint_is_warned_of_wherever_it_is_seen(
    tmp_path: Path, data_dir: Path, db: Connection
) -> None:
    file, where = a_brand_file(tmp_path, BRAND), ("--data-dir", data_dir)
    dry = await ltzd("brand", "apply", file, "--dry-run", *where)
    applied = await ltzd("brand", "apply", file, *where)
    for words in (dry.err, applied.err, (await ltzd("brand", "show", ID, *where)).out):
        assert "Set `signed_bypass = true` in [brand]." in words
        assert "Set `daily_mint_budget` in [brand]" in words
    shown = await ltzd("brand", "show", ID, "--json", *where)
    assert [words.split()[0] for words in shown.json["warnings"]] == ["Anybody", "Nothing"]


async def test_with_a_process_of_its_own_it_is_the_same(tmp_path: Path, data_dir: Path) -> None:
    done = await ltzd_apart("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)

    assert done.json["brandId"] == ID
    assert done.err.splitlines()[0] == f"+ brand {ID}: new"


async def test_killed_between_what_it_shows_and_what_it_writes_it_leaves_nothing(
    tmp_path: Path, data_dir: Path, db: Connection
) -> None:
    async with db.transaction():
        await db.execute("LOCK TABLE brands IN SHARE ROW EXCLUSIVE MODE")
        applying = await begin_ltzd(
            "brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir
        )
        assert applying.stderr is not None
        shown = await asyncio.wait_for(applying.stderr.readline(), timeout=60)
        assert shown.decode() == f"+ brand {ID}: new\n"

        async def is_about_to_write() -> bool:
            waiting: bool = await db.fetchval(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid())"
            )
            return waiting

        await until(is_about_to_write)
        applying.kill()
        assert await applying.wait() < 0

    assert await brands.latest_revision(db) == 0
    assert await db.fetchval("SELECT count(*) FROM brand_secrets") == 0
    done = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)
    assert "securityKey" in done.json


async def test_what_another_changes_meanwhile_is_shown_before_it_is_overwritten(
    tmp_path: Path, data_dir: Path, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_brand_file(tmp_path)
    await ltzd("brand", "apply", file, "--data-dir", data_dir)
    load, looks = brands.load, itertools.count()

    async def loaded_a_moment_before(connection: Connection, brand_id: Address) -> Brand | None:
        configuration = await load(connection, brand_id)
        if next(looks) == 0:
            text = CAREFUL.replace("Demo", "Theirs").replace("shop", "their")
            other = parse_brand_file(text, "theirs.toml")
            await brands.apply(connection, other, Sealer.from_file(data_dir / "master.key"))
        return configuration

    monkeypatch.setattr(brands, "load", loaded_a_moment_before)
    a_brand_file(tmp_path, CAREFUL.replace("Demo", "Ours"))
    done = await ltzd("brand", "apply", file, "--data-dir", data_dir)

    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        "~ name: Demo -> Ours",
        "The brand was changed by somebody else meanwhile. The changes are now:",
        "~ name: Theirs -> Ours",
        "~ domains: [their.example] -> [shop.example]",
    ]
    assert await brands.load(db, ADDRESS) == parse_brand_file(file.read_text(), "demo.toml")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (BRAND + 'nam = 1\nautomation = "x"\n', "2 faults:"),
        (BRAND + "automation = \n", "no valid TOML: Invalid value (at line 5, column 14)"),
        (BRAND + 'name = "again"', "no valid TOML: Cannot overwrite a value (at line 5, the end)"),
        (b"[brand]\n# caf\xe9\n", "line 2 is not UTF-8 text."),
        ("", "demo.toml: brand: the section is missing"),
        ("[[events]]\ntype = 'form_submit'", "demo.toml: brand: the section is missing"),
        ("# " + "x" * brand_apply.MAX_BYTES, "is larger than 1 MiB."),
    ],
)
async def test_a_bad_file_is_refused_in_words(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    file = a_brand_file(tmp_path, content)

    done = await ltzd("brand", "apply", file, "--data-dir", tmp_path / "none")

    assert (done.code, done.out) == (1, "")
    assert sentence in done.err
    assert str(file) in done.err or sentence == "2 faults:"


async def test_all_faults_of_a_file_are_told_with_their_lines(tmp_path: Path) -> None:
    file = a_brand_file(tmp_path, BRAND + 'nam = 1\nautomation = "x"\n')

    done = await ltzd("brand", "apply", file, "--data-dir", tmp_path / "none")

    assert done.err.splitlines() == [
        "ltzd: 2 faults:",
        f"  {file}:6: brand.automation: must be true or false",
        f"  {file}:5: brand.nam: unknown key",
    ]


async def test_a_brands_file_writes_no_lines_and_no_terminal_codes_of_its_own(
    tmp_path: Path,
) -> None:
    file = a_brand_file(tmp_path, BRAND + '"\\u001b[2Jx\\nltzd: 0 faults\\u202e" = 1\n')

    done = await ltzd("brand", "apply", file, "--data-dir", tmp_path / "none")

    assert done.err.splitlines() == [
        "ltzd: 1 fault:",
        f"  {file}:1: brand.\\x1b[2Jx\\nltzd: 0 faults\\u202e: unknown key",
    ]


async def test_what_is_no_file_is_refused_in_words(tmp_path: Path) -> None:
    endless = Path("/dev/zero")
    sentence = {
        tmp_path / "none.toml": "cannot be read: No such file or directory.",
        tmp_path: "cannot be read: Is a directory.",
        a_brand_file(tmp_path) / "x": "cannot be read: Not a directory.",
        tmp_path / ("x" * 300): "cannot be read: File name too long.",
        endless: "is larger than 1 MiB.",
    }
    for path, words in sentence.items():
        done = await ltzd("brand", "apply", path)
        assert (done.code, done.out) == (1, "")
        assert done.err == f"ltzd: The brand file {path} {words}\n"


async def test_a_file_as_other_systems_write_it_is_read(tmp_path: Path, data_dir: Path) -> None:
    text = b"\xef\xbb\xbf" + BRAND.replace("\n", "\r\n").encode()

    done = await ltzd("brand", "apply", a_brand_file(tmp_path, text), "--data-dir", data_dir)

    assert done.json["brandId"] == ID


async def test_the_switches_outlast_a_file_and_are_told(
    tmp_path: Path, data_dir: Path, db: Connection
) -> None:
    file = a_brand_file(tmp_path)
    where = ("--data-dir", data_dir)
    await ltzd("brand", "apply", file, *where)
    await ltzd("brand", "pause", ID, *where)
    a_brand_file(tmp_path, CAREFUL.replace("Demo", "New"))
    paused = await ltzd("brand", "apply", file, *where)
    await ltzd("brand", "disable", ID, *where)
    disabled = await ltzd("brand", "apply", file, *where)

    assert paused.err == (
        f"~ name: Demo -> New\nThe brand is still paused; `ltzd brand resume {ID}` changes that.\n"
    )
    assert disabled.err == (
        f"nothing changes\nThe brand is still disabled; `ltzd brand enable {ID}` changes that.\n"
    )
    (record,) = await brand_records.list_all(db)
    assert record.disabled_at is not None
    assert record.paused_at is not None


async def test_with_nothing_running_it_says_what_to_do(tmp_path: Path) -> None:
    outcome = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", tmp_path / "none")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f"ltzd: No dev instance runs in {tmp_path / 'none'}: give --config FILE, start "
        "`ltzd dev` there first, or name its data directory with --data-dir.\n"
    )


async def test_a_stopped_database_is_a_sentence(tmp_path: Path, data_dir: Path) -> None:
    dev = {"adminUrl": "http://127.0.0.1:1", "databaseUrl": "postgresql://u:hunter2@127.0.0.1:1/x"}
    (data_dir / "dev.json").write_text(json.dumps(dev))

    outcome = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("ltzd: The database ")
    assert "does not answer: " in outcome.err
    assert "hunter2" not in outcome.err


async def test_a_database_that_refuses_is_a_sentence(
    tmp_path: Path, data_dir: Path, database_url: str
) -> None:
    nowhere = database_url.rpartition("/")[0] + "/no_such_database"
    dev = {"adminUrl": "http://127.0.0.1:1", "databaseUrl": nowhere}
    (data_dir / "dev.json").write_text(json.dumps(dev))

    outcome = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("ltzd: The database no_such_database ")
    assert "does not exist (3D000): create it" in outcome.err


async def test_a_database_of_another_time_is_a_sentence(
    tmp_path: Path, data_dir: Path, db: Connection
) -> None:
    await db.execute("ALTER TABLE brands RENAME TO others")

    outcome = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(
        "ltzd: The database does not have this version's tables yet; run: ltzd mi"
    )


async def test_a_database_of_a_newer_version_is_a_sentence(
    tmp_path: Path, data_dir: Path, db: Connection
) -> None:
    await db.execute("ALTER TABLE brands RENAME TO others")
    await db.execute("UPDATE alembic_version SET version_num = '9999'")

    outcome = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(
        "ltzd: The database has schema revision 9999, which this ltzd does not know; run the newer"
    )


async def test_a_database_lost_on_the_way_is_a_sentence_and_nothing_is_half_made(
    tmp_path: Path, data_dir: Path, db: Connection
) -> None:
    async with db.transaction():
        await db.execute("LOCK TABLE brands IN SHARE ROW EXCLUSIVE MODE")
        applying = asyncio.create_task(
            ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)
        )

        async def was_ended() -> bool:
            ended: bool | None = await db.fetchval(
                """
                SELECT bool_or(pg_terminate_backend(pid))
                  FROM pg_locks
                 WHERE NOT granted AND pid <> pg_backend_pid()
                """
            )
            return bool(ended)

        await until(was_ended)
        done = await applying

    assert (done.code, done.out) == (1, "")
    assert "ltzd: The database broke the command off" in done.err
    assert "check whether the change was made before you repeat the command.\n" in done.err
    assert await brands.latest_revision(db) == 0


def a_settings_file(folder: Path, data_dir: Path, database_url: str) -> Path:
    secret = data_dir / "master.key"
    config = folder / "ltzd.toml"
    write_secret(
        config,
        f"""
        database_url = "{database_url}"
        master_key_file = "{secret}"
        [node]
        rpc_url = "http://127.0.0.1:8545"
        [contracts]
        ltz = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
        perk_nft = "0xe7f1725e7734ce288f8367e1bb143e90bb3f0512"
        points_sale = "0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0"
        business_escrow = "0xcf7ed3acca5a467e9e704c703e8d87f634fb0fc9"
        first_block = 0
        [operator]
        minter_key_file = "{secret}"
        relay_key_file = "{secret}"
        [identity]
        base_url = "https://identity.example"
        app_id = "app"
        app_secret = "secret"
        """,
    )
    return config


LOCAL_API = """\
[[constraints]]
collection_id = 7
kind = "external_api"
url = "http://127.0.0.1:8080/{user_address}"
json_path = "$.allowed"
operator = "exists"
"""


async def test_an_api_on_this_machine_is_for_a_dev_instance_only(
    tmp_path: Path, data_dir: Path, database_url: str, db: Connection
) -> None:
    file = a_brand_file(tmp_path, BRAND + LOCAL_API)
    config = a_settings_file(tmp_path, data_dir, database_url)

    refused = await ltzd("brand", "apply", file, "--config", config)
    taken = await ltzd("brand", "apply", file, "--data-dir", data_dir)

    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "ltzd: The constraint on collection 7 queries http://127.0.0.1:8080/{user_address}: "
        "only a dev instance, or one with staging = true, may query its own machine.\n"
    )
    assert taken.code == 0, taken.err
    assert "+ constraint on collection 7 external_api: url http://127.0.0.1:8080/" in taken.err
    assert await brands.load(db, ADDRESS) == parse_brand_file(file.read_text(), "demo.toml")


async def test_a_settings_file_names_the_database_too(
    tmp_path: Path, data_dir: Path, database_url: str
) -> None:
    config = a_settings_file(tmp_path, data_dir, database_url)

    migrated = await ltzd_apart("migrate", "--complete", "--config", config)
    applied = await ltzd("brand", "apply", a_brand_file(tmp_path), "--config", config)
    listed = await ltzd("brand", "list", "--json", "--config", config)

    assert migrated.code == 0, migrated.err
    assert applied.json["brandId"] == ID
    assert [brand["id"] for brand in listed.json] == [ID]
