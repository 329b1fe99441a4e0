"""Writes keystores of version 3, whose files only their owner can read, and reads their addresses.

A keystore is opened again before its address is printed, so an address is never given out for a
key that cannot be used.
"""

import getpass
import json
import secrets
import sys
from pathlib import Path
from typing import Final

import coincurve
from eth_keyfile.keyfile import create_keyfile_json

from ltzd.chain.signing import Signer
from ltzd.cli.output import print_json, print_message
from ltzd.daemon.keys import parse_key, read_key
from ltzd.errors import Misconfigured
from ltzd.secret_files import create_private, read_secret_text
from ltzd.values import Address, address_of, checksummed

_LONGEST_INPUT: Final = 1024
_NEXT_STEPS: Final = (
    "Copy the keystore and its password to two different safe places.",
    "Send the address gas money; `ltzd deploy` or `ltzd wallet grant` grants a wallet its roles.",
    "Name the keystore in `[[operator.wallets]]`, or add it with `ltzd wallet add`.",
)


def new(file: Path, password_file: Path | None, *, as_json: bool) -> None:
    """Raises Misconfigured; no file is left behind then."""
    _refuse_existing(file)
    password = _new_password(password_file)
    _write(file, coincurve.PrivateKey(secrets.token_bytes(32)).secret, password, as_json=as_json)


def import_key(
    file: Path, key_file: Path | None, password_file: Path | None, *, as_json: bool
) -> None:
    """Raises Misconfigured; no file is left behind then."""
    _refuse_existing(file)
    secret = read_key(key_file) if key_file is not None else parse_key(_read_key(), "The input")
    _write(file, secret, _new_password(password_file), as_json=as_json)
    if key_file is not None:
        print_message(f"{key_file} still holds the key unencrypted: delete it if it is not needed.")


def address(file: Path, password_file: Path | None, *, as_json: bool) -> None:
    """Raises Misconfigured."""
    text = read_secret_text(file)
    is_proven = password_file is not None or not text.startswith("{")
    if is_proven:
        wallet_address = Signer(read_key(file, password_file)).address
    else:
        wallet_address = _named_address(file, text)
    if as_json:
        print_json(
            {"address": checksummed(wallet_address), "file": str(file), "isProven": is_proven}
        )
        return
    print(checksummed(wallet_address))
    if not is_proven:
        print_message(
            "This is the address that the keystore names; --password-file proves it by the key."
        )


def _write(file: Path, secret: bytes, password: str, *, as_json: bool) -> None:
    keystore = create_keyfile_json(secret, password.encode(), kdf="scrypt")
    try:
        create_private(file, json.dumps(keystore))
    except OSError as error:
        raise Misconfigured(f"{file} cannot be written: {error.strerror}.") from error
    wallet = Signer(secret).address
    if Signer(read_key(file, password=password)).address != wallet:
        file.unlink()
        raise Misconfigured(f"{file} could not be opened again, so it was deleted; try once more.")
    if as_json:
        print_json({"address": checksummed(wallet), "file": str(file), "next": _NEXT_STEPS})
        return
    print(checksummed(wallet))
    print_message(f"{file} holds the key of this address, encrypted; only you can read the file.")
    for step in _NEXT_STEPS:
        print_message(f"- {step}")


def _refuse_existing(file: Path) -> None:
    """Before anybody types a password. `create_private` refuses an existing file again."""
    if file.exists() or file.is_symlink():
        raise Misconfigured(f"{file} exists, and a key is never overwritten: name another file.")
    if not file.parent.is_dir():
        raise Misconfigured(f"The folder {file.parent} does not exist.")


def _new_password(password_file: Path | None) -> str:
    if password_file is not None:
        password = read_secret_text(password_file)
    elif sys.stdin.isatty():
        password = getpass.getpass("Password of the new keystore: ").strip()
        if password and getpass.getpass("Once more: ").strip() != password:
            raise Misconfigured("The two passwords differ.")
    else:
        raise Misconfigured("There is no terminal to ask for the password: give --password-file.")
    if not password:
        raise Misconfigured("The password is empty.")
    return password


def _read_key() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("Private key (64 hex digits, not shown): ").strip()
    return sys.stdin.read(_LONGEST_INPUT).strip()


def _named_address(file: Path, text: str) -> Address:
    try:
        name = json.loads(text)["address"]
        return address_of("0x" + str(name).removeprefix("0x"))
    except (ValueError, KeyError, TypeError):
        raise Misconfigured(
            f"The keystore {file} names no address; with --password-file the command derives "
            "the address from the key."
        ) from None
