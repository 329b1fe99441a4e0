"""The options of `ltzd dev`, as parsed from the command line."""

from pathlib import Path
from typing import Literal

import msgspec

ChainChoice = Literal["auto", "tester", "anvil"]


class DevOptions(msgspec.Struct, frozen=True):
    """A URL names a running service to use; without it, dev mode starts the service itself."""

    port: int = 8000
    admin_port: int = 9464
    data_dir: Path = Path(".ltzd")
    chain: ChainChoice = "auto"
    block_time_seconds: float = 0.0
    """0 mines a block for every transaction at once."""
    clean: bool = False
    rpc_urls: tuple[str, ...] = ()
    """The nodes of one running chain."""
    database_url: str | None = None
    redis_url: str | None = None
    mint_wallets: int = 1
    relay_wallets: int = 1
    max_in_flight: int = 5_000
    """The transactions of one wallet that may wait for their blocks."""
    site_url: str | None = None
    """A site on this machine that replaces the sandbox's."""
