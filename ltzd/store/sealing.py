"""What must be readable again but not from a stolen database: AES-256-GCM, bound to its place.

The master key file holds one key of 64 hex digits per line. The first one seals; the others still
open what they sealed once. A sealed value is nonce | ciphertext | tag, and opens only under the
same brand and name, so that nobody can move one brand's key to another's row.
"""

import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ltzd.errors import Misconfigured
from ltzd.values import Address, hex_of

_NONCE_BYTES = 12
_KEY = re.compile(r"[0-9a-fA-F]{64}")


class Sealer:
    """`key_id` names the key that seals now; it tells nothing about the key."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = {_key_id(key): AESGCM(key) for key in keys}
        self.key_id = _key_id(keys[0])

    @classmethod
    def from_file(cls, path: Path, *, create: bool = False) -> Self:
        """Raises Misconfigured if the file is malformed, open to others, or missing.

        `create` makes a missing one.
        """
        if create and not path.exists():
            _make_key_file(path)
        try:
            mode = path.stat().st_mode
            lines = path.read_text().split()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it holds no text"
            raise Misconfigured(f"The master key file {path} cannot be read: {reason}.") from error
        if mode & 0o077:
            raise Misconfigured(
                f"Others may read the master key file {path}; run: chmod 600 {path}"
            )
        if not lines or not all(_KEY.fullmatch(line) for line in lines):
            raise Misconfigured(
                f"The master key file {path} must hold one key of 64 hex digits per line; "
                "`openssl rand -hex 32` makes one."
            )
        return cls([bytes.fromhex(line) for line in lines])

    def seal(self, text: str, brand: Address, name: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._keys[self.key_id].encrypt(nonce, text.encode(), _place(brand, name))

    def open(self, sealed: bytes, key_id: str, brand: Address, name: str) -> str:
        """Raises Misconfigured if the key is not in our file or the value was not sealed here."""
        key = self._keys.get(key_id)
        if key is None:
            raise Misconfigured(
                f"The {name} of brand {hex_of(brand)} was sealed with master key {key_id}, "
                "which the master key file does not hold; add that key as a further line."
            )
        try:
            raw = key.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _place(brand, name))
        except (InvalidTag, ValueError) as error:
            raise Misconfigured(
                f"The {name} of brand {hex_of(brand)} was changed or moved in the database; "
                "give the brand a new one."
            ) from error
        return raw.decode()


def _key_id(key: bytes) -> str:
    return hashlib.sha256(b"ltzd master key id" + key).hexdigest()[:16]


def _place(brand: Address, name: str) -> bytes:
    return b"ltzd brand_secrets " + brand + name.encode()


def _make_key_file(path: Path) -> None:
    """Write beside and link: the file is whole or absent, and a key that another made stays."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(unfinished)
    except FileExistsError:
        pass
    except OSError as error:
        raise Misconfigured(
            f"The master key file {path} cannot be made: {error.strerror}."
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
