"""Private keys from files: plain hex, or an encrypted Ethereum keystore with a password file."""

import json
from pathlib import Path

import coincurve

from ltzd.errors import Misconfigured
from ltzd.secret_files import read_secret_text


def read_key(path: Path, password_file: Path | None = None) -> bytes:
    """32 bytes. Raises Misconfigured, also if others can read one of the files; never with any part
    of their content."""
    text = read_secret_text(path)
    raw = _opened(path, text, password_file) if text.startswith("{") else _from_hex(path, text)
    try:
        coincurve.PrivateKey(raw)
    except (ValueError, TypeError):
        raise _no_key(path) from None
    return raw


def _no_key(path: Path) -> Misconfigured:
    return Misconfigured(
        f"The key file {path} must hold a private key in 64 hex digits or an encrypted keystore."
    )


def _from_hex(path: Path, text: str) -> bytes:
    digits = text.removeprefix("0x")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raise _no_key(path) from None
    if len(digits) != 64:
        raise _no_key(path)
    return raw


def _opened(path: Path, text: str, password_file: Path | None) -> bytes:
    if password_file is None:
        raise Misconfigured(f"The key file {path} is encrypted; name its password's file too.")
    # Imported for a keystore only: eth_keyfile takes 0.3 s, for the BLS keys of validators.
    from eth_keyfile.keyfile import decode_keyfile_json  # noqa: PLC0415

    password = read_secret_text(password_file)
    try:
        return decode_keyfile_json(json.loads(text), password.encode())
    except (ValueError, KeyError, TypeError, NotImplementedError) as error:
        wrong = "MAC mismatch" in str(error)
        reason = "the password is wrong" if wrong else "it is not a keystore that ltzd can read"
        raise Misconfigured(f"The key file {path} cannot be opened: {reason}.") from None
