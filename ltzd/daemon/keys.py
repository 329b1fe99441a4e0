"""Reads private keys from files: hex digits, or an encrypted Ethereum keystore."""

import json
from pathlib import Path

import coincurve

from ltzd.errors import Misconfigured
from ltzd.secret_files import read_secret_text


def read_key(path: Path, password_file: Path | None = None) -> bytes:
    """The 32 bytes of the key. A keystore needs `password_file`.

    Raises Misconfigured, also if other users can read one of the files. The message never holds any
    part of their content.
    """
    text = read_secret_text(path)
    raw = _decrypt(path, text, password_file) if text.startswith("{") else _parse_hex(path, text)
    try:
        coincurve.PrivateKey(raw)
    except (ValueError, TypeError):
        raise _invalid_key(path) from None
    return raw


def _invalid_key(path: Path) -> Misconfigured:
    return Misconfigured(
        f"The key file {path} must hold a private key of 64 hex digits or an encrypted keystore."
    )


def _parse_hex(path: Path, text: str) -> bytes:
    digits = text.removeprefix("0x")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raise _invalid_key(path) from None
    if len(digits) != 64:
        raise _invalid_key(path)
    return raw


def _decrypt(path: Path, text: str, password_file: Path | None) -> bytes:
    if password_file is None:
        raise Misconfigured(f"The key file {path} is encrypted; name its password's file too.")
    # eth_keyfile takes 0.3 s to import, for the BLS keys of validators.
    from eth_keyfile.keyfile import decode_keyfile_json  # noqa: PLC0415

    password = read_secret_text(password_file)
    try:
        return decode_keyfile_json(json.loads(text), password.encode())
    except (ValueError, KeyError, TypeError, NotImplementedError) as error:
        is_wrong = "MAC mismatch" in str(error)
        reason = "the password is wrong" if is_wrong else "it is not a keystore that ltzd can read"
        raise Misconfigured(f"The key file {path} cannot be opened: {reason}.") from None
