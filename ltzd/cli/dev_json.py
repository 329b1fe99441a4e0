"""Reads `dev.json`, in which a dev instance publishes its addresses and URLs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ltzd.errors import Misconfigured
from ltzd.secret_files import read_secret
from ltzd.values import Address, address_of

NAME = "dev.json"
_CONTRACTS = ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow")
"""The names in `dev.json`. Importing them from `ltzd.chain` would triple `ltzd status`'s start."""


@dataclass(frozen=True, slots=True)
class DevInstance:
    admin_url: str
    database_url: str = field(repr=False)


class DevContracts(msgspec.Struct, frozen=True):
    """`contracts` are addresses by name."""

    rpc_url: str
    chain_id: int
    contracts: Mapping[str, Address]


def read(data_dir: Path) -> DevInstance:
    """Raises Misconfigured if `data_dir` has no valid `dev.json`."""
    content = _content(data_dir)
    try:
        return DevInstance(_text(content, "adminUrl"), _text(content, "databaseUrl"))
    except (KeyError, TypeError) as error:
        raise _malformed(data_dir) from error


def read_base_url(data_dir: Path) -> str:
    """The URL of the public port. Raises Misconfigured like `read`."""
    try:
        return _text(_content(data_dir), "baseUrl")
    except (KeyError, TypeError) as error:
        raise _malformed(data_dir) from error


def read_chain(data_dir: Path) -> DevContracts:
    """Raises Misconfigured like `read`."""
    content = _content(data_dir)
    try:
        addresses = {name: address_of(content["contracts"][name]) for name in _CONTRACTS}
        return DevContracts(_text(content, "rpcUrl"), int(content["chainId"]), addresses)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _malformed(data_dir) from error


def _content(data_dir: Path) -> Any:
    path = data_dir / NAME
    if not path.exists():
        raise Misconfigured(
            f"No dev instance runs in {data_dir}: give --config FILE, start `ltzd dev` there "
            "first, or name its data directory with --data-dir."
        )
    try:
        return json.loads(read_secret(path))
    except ValueError as error:
        raise _malformed(data_dir) from error


def _text(content: Any, name: str) -> str:
    """Raises KeyError, TypeError."""
    text = content[name]
    if not isinstance(text, str):
        raise TypeError(name)
    return text


def _malformed(data_dir: Path) -> Misconfigured:
    return Misconfigured(f"{data_dir / NAME} is malformed; restart `ltzd dev` to write it again.")
