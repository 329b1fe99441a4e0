"""The compiled contracts: ABI and bytecode as `make contracts` built them.

`compiled/former` holds the builds of earlier versions that still serve: their ABI is the same.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from ltzd.values import bytes_of, keccak

CONTRACTS: Final = ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow")


@cache
def artifact(contract: str) -> dict[str, Any]:
    """The keys `abi` and `bytecode` of one of `CONTRACTS`. Raises KeyError for another name."""
    if contract not in CONTRACTS:
        raise KeyError(f"there is no contract {contract}")
    file = resources.files("ltzd.chain").joinpath(f"compiled/{contract}.json")
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


@cache
def bytecode(contract: str) -> bytes:
    """The creation code without the constructor's arguments."""
    return bytes_of(artifact(contract)["bytecode"])


@cache
def former_bytecodes(contract: str) -> tuple[bytes, ...]:
    """The creation code of the builds that earlier versions have deployed, oldest first."""
    folder = resources.files("ltzd.chain").joinpath("compiled/former")
    files = sorted(file.name for file in folder.iterdir() if file.name.startswith(f"{contract}-"))
    documents = (json.loads(folder.joinpath(name).read_text(encoding="utf-8")) for name in files)
    return tuple(bytes_of(document["bytecode"]) for document in documents)


@cache
def selector(contract: str, function: str) -> bytes:
    """Raises KeyError unless the contract has exactly one function of this name."""
    entries = [
        entry
        for entry in artifact(contract)["abi"]
        if entry["type"] == "function" and entry["name"] == function
    ]
    if len(entries) != 1:
        count = "several functions" if entries else "no function"
        raise KeyError(f"{contract} has {count} {function}")
    return keccak(signature(entries[0]).encode())[:4]


def signature(entry: Mapping[str, Any]) -> str:
    """The signature of an ABI's function, event or error, such as `transfer(address,uint256)`."""
    return f"{entry['name']}({','.join(map(canonical_type, entry['inputs']))})"


def canonical_type(parameter: Mapping[str, Any]) -> str:
    """The type as it stands in a signature: a tuple is its components in brackets."""
    name: str = parameter["type"]
    if not name.startswith("tuple"):
        return name
    components = ",".join(map(canonical_type, parameter["components"]))
    return f"({components}){name.removeprefix('tuple')}"
