"""Reads private keys from files: hex digits, or an encrypted Ethereum keystore."""

import json
from pathlib import Path

import coincurve

from ltzd.errors import Misconfigured
from ltzd.secret_files import read_secret_text


def read_key(
    path: Path, password_file: Path | None = None, *, password: str | None = None
) -> bytes:
    """The 32 bytes of the key. A keystore needs its password, or the file that holds it.

    Raises Misconfigured, also if other users can read one of the files. The message never holds any
    part of their content.
    """
    text = read_secret_text(path)
    if text.startswith("{"):
        if password is None and password_file is None:
            raise Misconfigured(f"The key file {path} is encrypted; name its password's file too.")
        return _valid(_decrypt(path, text, password, password_file), f"The key file {path}")
    return parse_key(text, f"The key file {path}")


def parse_key(text: str, origin: str) -> bytes:
    """Read 64 hex digits. Raises Misconfigured with `origin` as the sentence's subject."""
    digits = text.removeprefix("0x")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raise _invalid_key(origin) from None
    if len(digits) != 64:
        raise _invalid_key(origin)
    return _valid(raw, origin)


def _valid(raw: bytes, origin: str) -> bytes:
    try:
        coincurve.PrivateKey(raw)
    except (ValueError, TypeError):
        raise _invalid_key(origin) from None
    return raw


def _invalid_key(origin: str) -> Misconfigured:
    return Misconfigured(
        f"{origin} must hold a private key of 64 hex digits or an encrypted keystore."
    )


def _decrypt(path: Path, text: str, password: str | None, password_file: Path | None) -> bytes:
    if password is None:
        assert password_file is not None, "the caller has checked that there is one"
        password = read_secret_text(password_file)
    # eth_keyfile takes 0.3 s to import, for the BLS keys of validators.
    from eth_keyfile.keyfile import decode_keyfile_json  # noqa: PLC0415

    try:
        return decode_keyfile_json(json.loads(text), password.encode())
    except (ValueError, KeyError, TypeError, NotImplementedError) as error:
        is_wrong = "MAC mismatch" in str(error)
        reason = "the password is wrong" if is_wrong else "it is not a keystore that ltzd can read"
        raise Misconfigured(f"The key file {path} cannot be opened: {reason}.") from None
