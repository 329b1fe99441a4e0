"""`ltzd init` writes files that ltzd accepts once a person has filled in the empty values."""

import asyncio
import errno
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from ltzd.cli.init_files import REQUIRED_BY_OPERATOR, starting_brand, starting_settings
from ltzd.daemon.settings.settings import Settings, read_settings
from ltzd.errors import FileRejected
from ltzd.rules.brands.configuration import parse_brand_file
from tests.support.commands import Outcome, ltzd
from tests.support.secret_files import write_secret

ROOT = Path(__file__).parents[2]
ID = "0x00000000000000000000000000000000000000aa"
CHECKSUMMED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
OPTIONS = ("--brand-id", ID, "--domain", "shop.example", "--daily-budget", "5000")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("LTZD_")]:
        monkeypatch.delenv(name)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def uncommented(text: str) -> str:
    """The text with every commented setting in force; prose has a space after its `#`."""
    return re.sub(r"^#(?=[a-z\[])", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["ltzd", "brand"])
def test_the_examples_in_config_are_what_init_writes_from(name: str) -> None:
    example = ROOT / "config" / f"{name}.example.toml"
    kept = ROOT / "ltzd" / "cli" / "templates" / f"{name}.toml"

    assert example.read_text() == kept.read_text(), f"cp {example} {kept}"


async def test_it_writes_a_brand_with_careful_limits(tmp_path: Path) -> None:
    done = await ltzd("init", tmp_path / "new" / "place", *OPTIONS, "--name", 'The "shop"')

    assert (done.code, done.out) == (0, "")
    text = (tmp_path / "new" / "place" / "brand.toml").read_text()
    brand = parse_brand_file(text, "brand.toml")
    assert (brand.id, brand.name, brand.domains) == (ID, 'The "shop"', ("shop.example",))
    assert brand.signed_bypass
    assert brand.daily_mint_budget == 5000
    assert brand.max_reward_per_event == 10_000
    assert brand.max_new_wallets_per_hour == 500
    assert brand.events_per_minute_per_ip == 120
    assert brand.events == ()
    assert "# LTZ in a day of time_zone; 0 = no limit" in text


def test_what_is_a_comment_in_a_brand_file_may_be_put_in_force() -> None:
    brand = parse_brand_file(
        uncommented(starting_brand(ID, "Demo", ["shop.example"], 0)), "brand.toml"
    )

    assert [rule.type for rule in brand.events] == [
        *("account_creation", "purchase", "custom_chat_welcome", "form_submit")
    ]
    assert [constraint.kind for constraint in brand.constraints] == [
        "external_api",
        "nft_holding",
        "ltz_balance",
    ]


async def test_the_settings_lack_only_what_their_owner_must_fill_in(tmp_path: Path) -> None:
    await ltzd("init", tmp_path, *OPTIONS)

    with pytest.raises(FileRejected) as caught:
        read_settings(tmp_path / "ltzd.toml")

    lacking = {fault.split(": ")[1].rpartition(".")[2] for fault in caught.value.faults}
    files = {name for name in lacking if name.endswith("_file")}
    assert lacking - files == set(REQUIRED_BY_OPERATOR)
    assert all("/etc/ltzd/" in fault for fault in caught.value.faults if "_file: " in fault)
    assert any(fault.endswith("node.urls: must hold at least 1") for fault in caught.value.faults)


def filled_in(folder: Path, text: str) -> Path:
    write_secret(folder / "secret", "hunter2")
    path = folder / "ltzd.toml"
    values = {
        "database_url": "postgresql:///ltzd",
        "urls": "https://node.example",
        "ltz": ID,
        "perk_nft": "0x" + "71" * 20,
        "points_sale": "0x" + "72" * 20,
        "business_escrow": "0x" + "73" * 20,
        "base_url": "https://identity.example",
        "app_id": "app",
    }
    for name, value in values.items():
        text = re.sub(rf'^{name} = ""', f'{name} = "{value}"', text, flags=re.MULTILINE)
    write_secret(path, re.sub(r"/etc/ltzd/[a-z.]+", str(folder / "secret"), text))
    return path


def test_settings_that_nobody_chose_are_the_defaults(tmp_path: Path) -> None:
    settings = read_settings(filled_in(tmp_path, starting_settings()))

    defaults = {
        name: field.default
        for name, field in Settings.model_fields.items()
        if not field.is_required()
    }
    others = {name for name, value in defaults.items() if getattr(settings, name) != value}
    # Every operator has these key and password files.
    assert others <= {"operator"}
    without_files = {
        f"{wallet}_{what}_file": None
        for wallet in ("minter", "relay")
        for what in ("key", "password")
    }
    assert settings.operator.model_copy(update=without_files) == defaults["operator"]


def test_what_is_a_comment_in_the_settings_may_be_put_in_force(tmp_path: Path) -> None:
    settings = read_settings(filled_in(tmp_path, uncommented(starting_settings())))

    assert settings.redis_url is not None
    assert settings.explorer_url == "https://explorer.example"


async def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    await ltzd("init", tmp_path, *OPTIONS)

    for name in ("ltzd.toml", "brand.toml"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["ltzd.toml", "brand.toml"])
async def test_nothing_is_overwritten_and_nothing_half_done(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")

    done = await ltzd("init", tmp_path, *OPTIONS)

    assert (done.code, done.out) == (1, "")
    assert done.err == f"ltzd: {tmp_path / name} exists already and is not overwritten.\n"
    assert names_in(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "mine"


async def test_where_it_cannot_write_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = await ltzd("init", tmp_path / "file", *OPTIONS)

    assert (done.code, done.out) == (1, "")
    assert done.err == f"ltzd: {tmp_path / 'file'} cannot be written: File exists.\n"


async def test_a_full_disk_is_told_with_the_file_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    done = await ltzd("init", tmp_path, *OPTIONS)

    file = tmp_path / "ltzd.toml"
    assert done.err == f"ltzd: {file} cannot be written: No space left on device.\n"
    assert names_in(tmp_path) == []


async def test_options_that_do_not_fit_are_told_by_their_names(tmp_path: Path) -> None:
    done = await ltzd(
        *("init", tmp_path, "--brand-id", "0xzz", "--domain", "com", "--daily-budget", "-1")
    )

    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "ltzd: 3 faults:",
        "  --brand-id: must be an address: 0x and 40 hex digits in lower case",
        "  --domain: must not be a whole top-level domain",
        "  --daily-budget: must be at least 0",
    ]
    assert names_in(tmp_path) == []


async def test_without_a_terminal_it_says_which_options_it_needs(tmp_path: Path) -> None:
    done = await ltzd("init", tmp_path, "--domain", "shop.example")

    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "ltzd: Give --brand-id, --daily-budget: standard input is not a terminal.\n"
    )
    assert names_in(tmp_path) == []


async def test_at_a_terminal_it_asks_for_what_no_option_says(tmp_path: Path) -> None:
    done = await at_a_terminal(tmp_path, "--brand-id", ID, answers="shop.example\nmuch\n700\n")

    assert done.code == 0, done.err
    assert "The domain that sends the brand's events" in done.err
    assert "The LTZ that the brand may give away in a day (0 is no limit)" in done.err
    brand = parse_brand_file((tmp_path / "brand.toml").read_text(), "brand.toml")
    assert (brand.name, brand.domains) == ("shop.example", ("shop.example",))
    assert brand.daily_mint_budget == 700


async def test_an_answer_that_is_not_valid_is_asked_for_again(tmp_path: Path) -> None:
    wrong = CHECKSUMMED.replace("a", "A", 1)
    answers = f"shop\n{wrong}\n{CHECKSUMMED}\ncom\nshop.example\n-1\n0\n"

    done = await at_a_terminal(tmp_path, answers=answers)

    assert done.code == 0, done.err
    assert done.err.count("The brand's id") == 3
    assert "whose checksum (the letters' case) is right" in done.err
    assert "must not be a whole top-level domain" in done.err
    assert "must be at least 0" in done.err
    brand = parse_brand_file((tmp_path / "brand.toml").read_text(), "brand.toml")
    assert brand.id == CHECKSUMMED.lower()


async def test_a_wrong_checksum_of_an_option_is_refused(tmp_path: Path) -> None:
    done = await ltzd(
        "init", tmp_path, "--brand-id", CHECKSUMMED.replace("a", "A", 1), *OPTIONS[2:]
    )

    assert done.code == 1
    assert "--brand-id: must be an address whose checksum" in done.err
    assert names_in(tmp_path) == []


async def test_it_ends_with_the_next_steps_which_are_commands(tmp_path: Path) -> None:
    done = await ltzd("init", tmp_path, *OPTIONS)

    steps = re.findall(r"^  \d\. ltzd ([a-z]+)", done.err, flags=re.MULTILINE)
    assert steps == ["key", "deploy", "check", "run", "brand"]
    for command in steps:
        assert (await ltzd(command, "--help")).code == 0
    assert all(len(line.replace(str(tmp_path), "")) <= 80 for line in done.err.splitlines())


async def at_a_terminal(folder: Path, *options: str, answers: str) -> Outcome:
    ours, theirs = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ltzd", "init", str(folder), *options),
            stdin=theirs,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        os.write(ours, answers.encode())
        out, err = await asyncio.wait_for(process.communicate(), timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())
