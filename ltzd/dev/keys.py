"""The dev instance's own wallets: random, in `<data_dir>/keys/`, readable by this user alone."""

import secrets
from pathlib import Path

from ltzd.chain.signing import Signer
from ltzd.daemon.keys import read_key
from ltzd.secret_files import write_private


def wallet(data_dir: Path, name: str) -> tuple[Path, Signer]:
    """The wallet called `name`, made on first use and stored durably before it can sign."""
    path = data_dir / "keys" / name
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, secrets.token_bytes(32).hex() + "\n")
    return path, Signer(read_key(path))
