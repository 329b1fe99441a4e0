"""AES-256-GCM for values that must be readable again, each bound to its place in the database.

A master key file holds one key of 64 hex digits per line. The first key of the first file seals.
The other keys, and those of further files, only open what they sealed earlier. A sealed value is
nonce | ciphertext | tag, and opens only in its own place, a brand and a name or a user and a
wallet. A value that is moved to another row does not open.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ltzd.errors import Misconfigured
from ltzd.secret_files import create_private, read_secret_text
from ltzd.values import Address, hex_of

_NONCE_BYTES = 12
_KEY = re.compile(r"[0-9a-fA-F]{64}")


class Sealer:
    """`key_id` names the key that seals now; it reveals nothing about the key."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._raw = {_key_id(key): key for key in keys}
        self._keys = {key_id: AESGCM(key) for key_id, key in self._raw.items()}
        self.key_id = _key_id(keys[0])

    @classmethod
    def from_file(cls, path: Path, *others: Path, create: bool = False) -> Self:
        """Keys of `others` only open; `create` creates a missing first file.

        Raises Misconfigured if a file is malformed, readable by others, or missing.
        """
        if create and not path.exists():
            _make_key_file(path)
        return cls([key for file in (path, *others) for key in _keys_in(file)])

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of all keys that open."""
        return frozenset(self._keys)

    def sealing_with(self, key_id: str) -> "Sealer":
        """The same keys, sealing with the one of this id, which must be among them."""
        return Sealer([self._raw[key_id], *self._raw.values()])

    def alone(self) -> "Sealer":
        """The key that seals, without any other."""
        return Sealer([self._raw[self.key_id]])

    def seal(self, text: str, brand: Address, name: str) -> bytes:
        return self._seal(text.encode(), _brand_place(brand, name))

    def open(self, sealed: bytes, key_id: str, brand: Address, name: str) -> str:
        """Raises Misconfigured if the key is in no key file or the value was not sealed here."""
        what = f"The {name} of brand {hex_of(brand)}"
        try:
            return self._open(sealed, key_id, _brand_place(brand, name), what).decode()
        except (InvalidTag, ValueError) as error:
            raise Misconfigured(
                f"{what} was changed or moved in the database; give the brand a new one."
            ) from error

    def seal_wallet_key(self, secret: bytes, subject: str, wallet: Address) -> bytes:
        return self._seal(secret, _wallet_place(subject, wallet))

    def open_wallet_key(self, sealed: bytes, key_id: str, subject: str, wallet: Address) -> bytes:
        """Raises Misconfigured as `open` does."""
        what = f"The key of wallet {hex_of(wallet)}"
        try:
            return self._open(sealed, key_id, _wallet_place(subject, wallet), what)
        except (InvalidTag, ValueError) as error:
            raise Misconfigured(
                f"{what} was changed or moved in the database; restore the row from a backup."
            ) from error

    def seal_erasure_key(self, secret: bytes, name: str) -> bytes:
        return self._seal(secret, _erasure_place(name))

    def open_erasure_key(self, sealed: bytes, key_id: str, name: str) -> bytes:
        """Raises Misconfigured as `open` does."""
        what = f"The erasure key of {name}"
        try:
            return self._open(sealed, key_id, _erasure_place(name), what)
        except (InvalidTag, ValueError) as error:
            raise Misconfigured(
                f"{what} was changed or moved in the database; restore the row from a backup."
            ) from error

    def keyed_hash(self, text: bytes) -> bytes:
        """An HMAC that only a holder of the sealing key can compute, for texts too short for a
        plain hash.
        """
        return _hash_with(self._raw[self.key_id], text)

    def keyed_hashes(self, text: bytes) -> list[bytes]:
        """The `keyed_hash` under each of the keys, the earlier sealing keys included."""
        return [_hash_with(key, text) for key in self._raw.values()]

    def _seal(self, raw: bytes, place: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._keys[self.key_id].encrypt(nonce, raw, place)

    def _open(self, sealed: bytes, key_id: str, place: bytes, what: str) -> bytes:
        key = self._keys.get(key_id)
        if key is None:
            raise Misconfigured(
                f"{what} was sealed with master key {key_id}, which the master key file does not "
                "hold; add that key as a further line, or its file to old_master_key_files."
            )
        return key.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)


def _key_id(key: bytes) -> str:
    return hashlib.sha256(b"ltzd master key id" + key).hexdigest()[:16]


def _hash_with(key: bytes, text: bytes) -> bytes:
    # A derived key: the key itself is used for AES.
    derived = hmac.digest(key, b"ltzd keyed hash", "sha256")
    return hmac.digest(derived, text, "sha256")


def _brand_place(brand: Address, name: str) -> bytes:
    return b"ltzd brand_secrets " + brand + name.encode()


def _wallet_place(subject: str, wallet: Address) -> bytes:
    """The associated data of a wallet key. The part of fixed length comes first, so that no two
    places are equal; its old table name stays, since sealed rows depend on it.
    """
    return b"ltzd local_users.sealed " + wallet + subject.encode()


def _erasure_place(name: str) -> bytes:
    return b"ltzd erasure_keys " + name.encode()


def _keys_in(path: Path) -> list[bytes]:
    lines = read_secret_text(path).split()
    if not lines or not all(_KEY.fullmatch(line) for line in lines):
        raise Misconfigured(
            f"The master key file {path} must hold one key of 64 hex digits per line; "
            "`openssl rand -hex 32` makes one."
        )
    return [bytes.fromhex(line) for line in lines]


def _make_key_file(path: Path) -> None:
    """Write a second file and link it: the file is whole or absent, and an existing key stays."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        unfinished.unlink(missing_ok=True)
        create_private(unfinished, secrets.token_hex(32) + "\n")
        with suppress(FileExistsError):
            path.hardlink_to(unfinished)
    except OSError as error:
        raise Misconfigured(
            f"The master key file {path} cannot be created: {error.strerror}."
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
