"""The dev instance's own wallets: random, in `<data_dir>/keys/`, readable by this user alone."""

import os
import secrets
from pathlib import Path

from ltzd.chain.signing import Signer
from ltzd.daemon.keys import read_key


def wallet(data_dir: Path, name: str) -> tuple[Path, Signer]:
    """The wallet called `name`, made on first use and stored durably before it can sign."""
    path = data_dir / "keys" / name
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, secrets.token_bytes(32).hex() + "\n")
    return path, Signer(read_key(path))


def write_private(path: Path, text: str) -> None:
    """Write a file whole or not at all, durably, readable by this user alone."""
    unfinished = path.with_name(path.name + ".new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
