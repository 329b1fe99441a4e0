"""`ltzd key` writes keystores that eth-account opens, and never shows a key."""

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from eth_account import Account
from eth_keyfile.keyfile import create_keyfile_json
from typer.testing import CliRunner

from ltzd.cli.main import app
from ltzd.daemon.keys import read_key
from tests.support.commands import Outcome
from tests.support.keystores import cheap_keystores
from tests.support.secret_files import write_secret

__all__ = ["cheap_keystores"]

SECRET = "01" * 32
ADDRESS = Account.from_key(SECRET).address


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    write_secret(path, "open sesame\n")
    return path


def key(*arguments: object, given: str = "") -> Outcome:
    """Runs `ltzd key …` with text on standard input, which is no terminal."""
    words = ["key", *map(str, arguments)]
    done = CliRunner().invoke(app, words, input=given, catch_exceptions=False)
    return Outcome(done.exit_code, done.stdout, done.stderr)


def opened(keystore: Path) -> str:
    """The key in hex, as eth-account reads it."""
    return bytes(Account.decrypt(keystore.read_text(), "open sesame")).hex()


def test_a_new_key_is_encrypted_private_and_never_shown(tmp_path: Path, password: Path) -> None:
    keystore = tmp_path / "minter.json"
    done = key("new", keystore, "--password-file", password)
    assert done.code == 0, done.err
    secret = opened(keystore)
    assert done.out.strip() == Account.from_key(secret).address
    assert stat.S_IMODE(keystore.stat().st_mode) == 0o600
    assert json.loads(keystore.read_text())["crypto"]["kdfparams"]["n"] == 2**18
    assert read_key(keystore, password).hex() == secret
    assert "ltzd wallet add" in done.err
    assert secret not in done.out + done.err
    assert "sesame" not in done.out + done.err


@pytest.mark.usefixtures("cheap_keystores")
def test_an_existing_key_is_imported_from_standard_input(tmp_path: Path, password: Path) -> None:
    keystore = tmp_path / "relay.json"
    done = key("import", keystore, "--password-file", password, "--json", given=f"0x{SECRET}\n")
    assert done.json["address"] == ADDRESS
    assert done.json["file"] == str(keystore)
    assert opened(keystore) == SECRET
    assert SECRET not in done.out + done.err


@pytest.mark.usefixtures("cheap_keystores")
def test_an_existing_key_is_imported_from_a_file(tmp_path: Path, password: Path) -> None:
    write_secret(tmp_path / "plain", SECRET)
    keystore = tmp_path / "relay.json"
    done = key("import", keystore, "--from", tmp_path / "plain", "--password-file", password)
    assert done.out.strip() == ADDRESS
    assert "still holds the key unencrypted" in done.err
    assert opened(keystore) == SECRET


def test_a_key_is_never_overwritten(tmp_path: Path, password: Path) -> None:
    keystore = tmp_path / "minter.json"
    write_secret(keystore, "precious")
    for command in (("new", keystore), ("import", keystore)):
        done = key(*command, "--password-file", password, given=SECRET)
        assert (done.code, done.out) == (1, "")
        assert "a key is never overwritten" in done.err
    assert keystore.read_text() == "precious"


@pytest.mark.parametrize("given", ["", "hunter2", "00" * 32, "ff" * 32, SECRET[1:], SECRET * 2])
def test_what_is_no_key_is_not_imported_nor_shown(
    tmp_path: Path, password: Path, given: str
) -> None:
    done = key("import", tmp_path / "relay.json", "--password-file", password, given=given)
    assert done.code == 1
    assert "The input must hold a private key of 64 hex digits" in done.err
    assert not given or given not in done.err
    assert not (tmp_path / "relay.json").exists()


def test_without_a_terminal_the_password_comes_from_a_file(tmp_path: Path) -> None:
    done = key("new", tmp_path / "minter.json")
    assert "give --password-file" in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_or_open_password_file_is_refused(tmp_path: Path, password: Path) -> None:
    write_secret(password, "\n")
    assert "The password is empty" in key("new", tmp_path / "a", "--password-file", password).err
    password.write_text("open sesame")
    os.chmod(password, 0o644)  # noqa: PTH101 - as a person does
    refusal = key("new", tmp_path / "a", "--password-file", password)
    assert "can be read by others" in refusal.err
    assert not (tmp_path / "a").exists()


def test_a_folder_that_is_missing_is_named(tmp_path: Path, password: Path) -> None:
    done = key("new", tmp_path / "keys" / "minter.json", "--password-file", password)
    assert f"The folder {tmp_path / 'keys'} does not exist" in done.err


def test_the_address_is_what_the_keystore_names_or_what_its_key_proves(
    tmp_path: Path, password: Path
) -> None:
    keystore = tmp_path / "minter.json"
    fields = create_keyfile_json(bytes.fromhex(SECRET), b"open sesame", kdf="pbkdf2", iterations=10)
    write_secret(keystore, json.dumps(fields))
    named = key("address", keystore)
    assert named.out.strip() == ADDRESS
    assert "--password-file proves it" in named.err
    assert key("address", keystore, "--json").json["isProven"] is False
    proven = key("address", keystore, "--password-file", password, "--json")
    assert proven.json == {"address": ADDRESS, "file": str(keystore), "isProven": True}

    write_secret(keystore, json.dumps(fields | {"address": "11" * 20}))
    assert key("address", keystore, "--password-file", password).out.strip() == ADDRESS
    del fields["address"]
    write_secret(keystore, json.dumps(fields))
    assert "names no address" in key("address", keystore).err


def test_the_address_of_a_plain_key_is_told(tmp_path: Path) -> None:
    write_secret(tmp_path / "plain", SECRET)
    done = key("address", tmp_path / "plain", "--json")
    assert done.json == {"address": ADDRESS, "file": str(tmp_path / "plain"), "isProven": True}
    assert SECRET not in done.out + done.err


def test_no_command_takes_a_key_as_an_argument(tmp_path: Path, password: Path) -> None:
    done = key("import", tmp_path / "relay.json", SECRET, "--password-file", password)
    assert done.code == 2
    assert not (tmp_path / "relay.json").exists()


def typed(keystore: Path, *answers: tuple[str, str]) -> Outcome:
    """Runs `ltzd key new` at a terminal; each answer is typed once its prompt has come."""
    here, there = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ltzd", "key", "new", str(keystore)],
        stdin=there,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    shown = b""
    try:
        for prompt, answer in answers:
            while not shown.endswith(prompt.encode()):
                read = process.stderr.read(1)
                assert read, shown
                shown += read
            os.write(here, f"{answer}\n".encode())
        out, rest = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(here)
        os.close(there)
    return Outcome(process.returncode, out.decode(), (shown + rest).decode())


PROMPT, AGAIN = "Password of the new keystore: ", "Once more: "


def test_at_a_terminal_the_password_is_typed_twice(tmp_path: Path) -> None:
    keystore = tmp_path / "minter.json"
    done = typed(keystore, (PROMPT, "open sesame"), (AGAIN, "open sesame"))
    assert done.code == 0, done.err
    assert done.out.strip() == Account.from_key(opened(keystore)).address
    assert "sesame" not in done.err


def test_two_different_passwords_write_nothing(tmp_path: Path) -> None:
    done = typed(tmp_path / "minter.json", (PROMPT, "open sesame"), (AGAIN, "open sesam"))
    assert done.code == 1
    assert "The two passwords differ" in done.err
    assert list(tmp_path.iterdir()) == []
