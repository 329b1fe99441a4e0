"""The dev instance's own wallets: random keys in `<data_dir>/keys/`, readable by their owner."""

import secrets
from pathlib import Path

from ltzd.chain.signing import Signer
from ltzd.daemon.keys import read_key
from ltzd.secret_files import write_private

KeyAndSigner = tuple[Path, Signer]


def load_or_create_all(data_dir: Path, name: str, count: int) -> list[KeyAndSigner]:
    """The wallets `name`, `name-2`, `name-3`, …"""
    names = [name, *(f"{name}-{number}" for number in range(2, count + 1))]
    return [load_or_create(data_dir, each) for each in names]


def load_or_create(data_dir: Path, name: str) -> KeyAndSigner:
    """Return the wallet's key file and signer; a new key is on disk before it can sign."""
    path = data_dir / "keys" / name
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, secrets.token_bytes(32).hex() + "\n")
    return path, Signer(read_key(path))
