"""The whole program: its version, its imports at start, and its errors without an instance."""

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ltzd import __version__
from ltzd.cli import dev_json
from ltzd.cli.targets import Target, open_connection
from ltzd.rules.brands.configuration import parse_brand_file
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.operator import wallets
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.commands import Outcome, begin_ltzd, ltzd, ltzd_apart
from tests.support.rows.core import MINTER
from tests.support.secret_files import write_secret
from tests.support.waiting import until


async def test_it_tells_its_version() -> None:
    done = await ltzd("--version")

    assert (done.code, done.out, done.err) == (0, f"ltzd {__version__}\n", "")


async def test_status_with_nothing_running_says_what_to_do(tmp_path: Path) -> None:
    outcome = await ltzd_apart("status", "--data-dir", tmp_path / "none")
    elsewhere = await ltzd("status", "--admin-url", "http://127.0.0.1:1")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"ltzd: No dev instance runs in {tmp_path / 'none'}")
    assert (elsewhere.code, elsewhere.out) == (1, "")
    assert elsewhere.err.startswith("ltzd: Nothing answers at http://127.0.0.1:1")


@pytest.mark.parametrize("command", ["status", "books", "event list", "wallet list"])
async def test_a_dev_json_whose_urls_are_no_text_is_malformed(command: str, tmp_path: Path) -> None:
    content = {"adminUrl": 1, "databaseUrl": None, "baseUrl": 2, "rpcUrl": 3}
    write_secret(tmp_path / "dev.json", json.dumps(content))

    outcome = await ltzd(*command.split(), "--data-dir", tmp_path)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"ltzd: {tmp_path / 'dev.json'} is malformed")


async def test_run_refuses_bad_settings_in_a_sentence(tmp_path: Path) -> None:
    outcome = await ltzd("run", "--config", tmp_path / "none.toml")

    assert outcome.code == 1
    assert outcome.err.startswith("ltzd: The settings file ")


@pytest.mark.parametrize("command", [("dev",), ("chain", "--port", "0")])
@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "1e300"])
async def test_an_impossible_block_time_is_refused_before_anything_starts(
    command: tuple[str, ...], seconds: str
) -> None:
    outcome = await ltzd(*command, "--block-time", seconds)

    assert (outcome.code, outcome.out) == (2, "")
    assert "Invalid value for '--block-time'" in outcome.err


@pytest.mark.parametrize("option", ["", "--json"])
async def test_a_full_disk_under_the_output_is_a_sentence(tmp_path: Path, option: str) -> None:
    key = write_secret(tmp_path / "key", "11" * 32)
    outcome = await in_a_shell(f"ltzd key address {key} {option} > /dev/full")

    assert outcome.code == 1
    assert outcome.err == (
        "ltzd: The output or a file cannot be written: No space left on device. Look whether the "
        "command did its work before you repeat it.\n"
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
async def test_an_output_that_fails_is_not_taken_for_a_lost_database(
    database_url: str, number: int
) -> None:
    target = Target(database_url, Path("master.key"))
    with pytest.raises(OSError, match=os.strerror(number)):
        async with open_connection(target, "test"):
            raise OSError(number, os.strerror(number))


async def test_keys_that_cannot_be_printed_are_told_to_be_lost(
    data_dir: Path, db: Connection
) -> None:
    brand = parse_brand_file(BRAND.format(id="0x" + "aa" * 20), "demo.toml")
    await brands.apply(db, brand, Sealer.from_file(data_dir / "master.key"))
    id_, where = "0x" + "aa" * 20, f"--data-dir {data_dir}"

    outcome = await in_a_shell(f"ltzd brand rotate-key {id_} --key api_key {where} > /dev/full")

    assert outcome.code == 1
    assert outcome.err == (
        "ltzd: The output cannot be written (No space left on device), so nobody has seen the new "
        "keys. They are in force: replace each one by `ltzd brand rotate-key`.\n"
    )


async def test_ctrl_c_does_not_say_that_nothing_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dev_json, "read", interrupt)
    outcome = await ltzd("brand", "list", "--data-dir", tmp_path)

    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == (
        "\nltzd: Interrupted. What the command had done by then stays: look before you repeat it.\n"
    )


BRAND = """
[brand]
id = "{id}"
name = "Kuşlar"
domains = ["a.example"]
"""
NOT_UTF8 = (
    "ltzd: An argument holds bytes that are not UTF-8: give it in UTF-8, as a terminal does if "
    "LANG ends with UTF-8.\n"
)
NO_USER = "ltzd: 'caf\\udce9' is no e-mail address, no user id (a UUID) and no wallet (0x…).\n"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("brand", "show"), NOT_UTF8),
        (("brand", "pause"), NOT_UTF8),
        (("webhooks", "list", "--brand"), NOT_UTF8),
        (("user", "show"), NO_USER),
        (("event", "list", "--brand"), NOT_UTF8),
        (("lane", "pause", "--kind", "mint", "--reason"), NOT_UTF8),
    ],
)
async def test_an_argument_that_is_not_utf8_is_a_sentence(
    command: tuple[str, ...], sentence: str, data_dir: Path, db: Connection
) -> None:
    await wallets.add(db, CHAIN_ID, MINTER.address, "mint")  # so that a lane can be paused
    outcome = await ltzd(*command, "caf\udce9", "--data-dir", data_dir)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == sentence


LONG = "x" * 300


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("status", "--data-dir", LONG), f"{LONG}/dev.json"),
        (("key", "new", LONG), LONG),
        (("key", "import", LONG, "--from", LONG), LONG),
        (("init", LONG), f"{LONG}/ltzd.toml"),
    ],
    ids=lambda value: " ".join(value)[:10],
)
async def test_a_path_that_cannot_be_looked_up_is_a_sentence(
    command: tuple[str, ...], file: str
) -> None:
    outcome = await ltzd(*command)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == f"ltzd: {file} cannot be used: File name too long.\n"


async def test_output_that_the_locale_cannot_encode_is_no_traceback(
    data_dir: Path, db: Connection
) -> None:
    text = BRAND.format(id="0x" + "aa" * 20)
    await brands.apply(
        db, parse_brand_file(text, "demo.toml"), Sealer.from_file(data_dir / "master.key")
    )
    for options in ((), ("--json",)):
        outcome = await ltzd_apart(
            *("brand", "list", "--data-dir", data_dir, *options), PYTHONIOENCODING="ascii"
        )
        assert outcome.code == 0, outcome.err
        assert "\\u015f" in outcome.out
    assert outcome.json[0]["name"] == "Kuşlar"


async def test_closed_standard_streams_are_the_null_device(tmp_path: Path) -> None:
    nothing = f"ltzd status --data-dir {tmp_path / 'none'}"
    closed = await in_a_shell(f"{nothing} 2>&-")
    no_output = await in_a_shell("ltzd --version >&-")

    assert (closed.code, closed.out, closed.err) == (1, "", "")
    assert (no_output.code, no_output.err) == (0, "")


async def in_a_shell(line: str) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", line.replace("ltzd", f"{sys.executable} -m ltzd", 1)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())


IMPORTS_FOR_EVER = """
import os, time
open(os.environ["BEGUN"], "w").close()
time.sleep(600)
"""


@pytest.fixture
def _sigint() -> Iterator[None]:
    """Programs begin with the usual Ctrl-C; those of a test run in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_sigint")
async def test_ctrl_c_during_the_imports_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(IMPORTS_FOR_EVER)
    begun = tmp_path / "begun"
    process = await begin_ltzd("--version", PYTHONPATH=str(tmp_path), BEGUN=str(begun))

    async def is_importing() -> bool:
        return begun.exists()

    await until(is_importing)
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)

    assert (process.returncode, out, err) == (-signal.SIGINT, b"", b"")


HEAVY = ("alembic", "asyncpg", "eth_abi", "eth_account", "pydantic", "redis", "sanic", "sqlalchemy")
NEVER_AT_START = ("alembic", "sqlalchemy", "web3", "eth_account", "eth_keyfile", "ltzd.dev")


async def loaded_by(program: str, names: tuple[str, ...]) -> list[str]:
    """The modules among `names` that a new interpreter has loaded after `program`."""
    report = f"import sys; print(*(name for name in {names!r} if name in sys.modules))"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{program}\n{report}"), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().split()


async def test_help_imports_nothing_heavy() -> None:
    names = (*HEAVY, "web3", "aiohttp", "rich")
    assert await loaded_by("import ltzd.cli.main", names) == []


async def test_the_daemon_starts_without_migrations_web3_keystores_and_dev_mode() -> None:
    """rich is not in the list because structlog imports it."""
    program = "import ltzd.daemon.main, ltzd.daemon.settings.settings"
    assert await loaded_by(program, NEVER_AT_START) == []


async def test_run_imports_no_package_that_a_daemon_never_uses() -> None:
    """`ltzd run` begins with `import_lean`; DNS and payments come at their first use."""
    program = "from ltzd.daemon.lean_imports import import_lean; import_lean()\n"
    names = ("rich", "greenlet", "opentelemetry", "dns", "stripe", "structlog", "redis")
    loaded = await loaded_by(program + "import ltzd.daemon.main", names)
    assert loaded == ["structlog", "redis"]


async def test_a_package_that_was_left_out_can_be_imported_afterwards() -> None:
    program = "from ltzd.daemon.lean_imports import import_lean; import_lean()\n"
    assert await loaded_by(program + "import rich, greenlet", ("rich",)) == ["rich"]


async def test_status_starts_without_the_daemon() -> None:
    names = (*HEAVY, "web3", "stripe", "ltzd.daemon", "ltzd.store", "ltzd.dev")
    assert await loaded_by("import ltzd.cli.status, ltzd.cli.dev_json", names) == []
