"""Private keys are read from plain or encrypted files; no error shows any part of them."""

import json
from pathlib import Path

import pytest
from eth_keyfile.keyfile import create_keyfile_json

from ltzd.daemon.keys import read_key
from ltzd.errors import Misconfigured
from tests.support.secret_files import write_secret

KEY = bytes(range(1, 33))


@pytest.mark.parametrize("text", [KEY.hex(), f"0x{KEY.hex()}\n", KEY.hex().upper()])
def test_a_plain_key_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    write_secret(path, text)

    assert read_key(path) == KEY


def test_an_encrypted_key_opens_with_its_password(tmp_path: Path) -> None:
    path, password = tmp_path / "key.json", tmp_path / "password"
    write_secret(path, json.dumps(create_keyfile_json(KEY, b"right", kdf="pbkdf2", iterations=10)))

    write_secret(password, "right\n")
    assert read_key(path, password) == KEY
    password.write_text("wrong\n")
    with pytest.raises(Misconfigured, match="the password is wrong"):
        read_key(path, password)
    with pytest.raises(Misconfigured, match="name its password's file"):
        read_key(path)


@pytest.mark.parametrize(
    "text",
    ["", "0x", KEY.hex()[:-2], KEY.hex() + "00", "00" * 32, "ff" * 32, "zz" * 32, "{}", "{", "[]"],
)
def test_what_is_no_key_is_a_sentence_without_its_content(tmp_path: Path, text: str) -> None:
    path, password = tmp_path / "key", tmp_path / "password"
    write_secret(path, text)
    write_secret(password, "right")

    with pytest.raises(Misconfigured, match="key file") as caught:
        read_key(path, password)
    assert not text or text in {"0x", "{}", "{", "[]"} or text[:20] not in caught.value.message


def test_a_missing_key_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be read: No such file"):
        read_key(tmp_path / "none")
