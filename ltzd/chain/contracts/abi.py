"""The compiled contracts' ABI, for cold calls: whatever is not hot is encoded from here by eth-abi.

Contracts go by their names (`LTZ`, `PerkNFT`, `PointsSale`, `BusinessEscrow`), functions by theirs,
or by their signature where two share a name. Addresses are given as bytes or 0x-hex and come back
as `Address`; a tuple is a sequence of its components; bytes32 has 32 bytes, nothing is padded.
A name that there is not is KeyError; an argument that does not fit is ValueError, naming it;
malformed data from a node is ValueError.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode
from eth_abi.exceptions import DecodingError, EncodingError

from ltzd.values import address_of, bytes_of, hash_of, keccak

CONTRACTS: Final = ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow")


@dataclass(frozen=True, slots=True)
class Event:
    """A log, by the name and the argument names of its event."""

    name: str
    arguments: Mapping[str, Any]


@cache
def compiled(contract: str) -> dict[str, Any]:
    """ABI and bytecode as `make contracts` built them."""
    if contract not in CONTRACTS:
        raise KeyError(f"there is no contract {contract}")
    file = resources.files("ltzd.chain").joinpath(f"compiled/{contract}.json")
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


@cache
def bytecode(contract: str) -> bytes:
    """What creates the contract, without the constructor's arguments."""
    return bytes_of(compiled(contract)["bytecode"])


def creation_code(contract: str, *arguments: object) -> bytes:
    """Bytecode and encoded constructor arguments: the data of a deployment."""
    constructor = next(each for each in compiled(contract)["abi"] if each["type"] == "constructor")
    return bytecode(contract) + _encoded(contract, constructor["inputs"], arguments)


def call(contract: str, function: str, *arguments: object) -> bytes:
    """Call data, such as `call("LTZ", "grantRole", role_id("MINTER"), wallet)`."""
    entry = _function(contract, function)
    where = f"{contract}.{entry['name']}"
    return selector(contract, function) + _encoded(where, entry["inputs"], arguments)


@cache
def selector(contract: str, function: str) -> bytes:
    return keccak(_signature(_function(contract, function)).encode())[:4]


@cache
def topic(contract: str, event: str) -> bytes:
    """The first topic of an event's logs."""
    return next(one for one, entry in _events(contract).items() if entry["name"] == event)


def role_id(role: str) -> bytes:
    """A role's id on chain: `MINTER` is keccak256("MINTER_ROLE"), `DEFAULT_ADMIN` is zero."""
    return bytes(32) if role == "DEFAULT_ADMIN" else keccak(f"{role}_ROLE".encode())


def decode_result(contract: str, function: str, data: bytes) -> tuple[Any, ...]:
    """What a function returned. Raises ValueError."""
    outputs = _function(contract, function)["outputs"]
    return _decoded(f"{contract}.{function} answers", outputs, data)


def decode_log(contract: str, log: Mapping[str, Any]) -> Event | None:
    """A log of the contract as the node tells it; None if it is of no event it declares.

    Raises ValueError when such a log is malformed.
    """
    try:
        topics = [hash_of(each) for each in log["topics"]]
        data = bytes_of(log["data"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("the log is malformed") from error
    entry = _events(contract).get(topics[0]) if topics else None
    if entry is None:
        return None
    indexed = [one for one in entry["inputs"] if one["indexed"]]
    plain = [one for one in entry["inputs"] if not one["indexed"]]
    if len(topics) != len(indexed) + 1:
        return None  # ERC-20 and ERC-721 share the first topic of their transfers
    where = f"{contract}.{entry['name']}"
    known: dict[str, Any] = {
        one["name"]: _decoded(where, [one], raw)[0]
        for one, raw in zip(indexed, topics[1:], strict=True)
    }
    values = _decoded(where, plain, data)
    known |= {one["name"]: value for one, value in zip(plain, values, strict=True)}
    return Event(entry["name"], {one["name"]: known[one["name"]] for one in entry["inputs"]})


@cache
def _function(contract: str, function: str) -> dict[str, Any]:
    entries = [
        entry
        for entry in compiled(contract)["abi"]
        if entry["type"] == "function" and function in {entry["name"], _signature(entry)}
    ]
    if len(entries) != 1:
        count = "no function" if not entries else "several functions"
        raise KeyError(f"{contract} has {count} {function}")
    (entry,) = entries
    return dict(entry)


@cache
def _events(contract: str) -> dict[bytes, dict[str, Any]]:
    return {
        keccak(_signature(entry).encode()): entry
        for entry in compiled(contract)["abi"]
        if entry["type"] == "event"
    }


def _signature(entry: Mapping[str, Any]) -> str:
    return f"{entry['name']}({','.join(_type(one) for one in entry['inputs'])})"


def _type(parameter: Mapping[str, Any]) -> str:
    """Solidity's canonical type: a tuple is the list of its components' types."""
    name: str = parameter["type"]
    if not name.startswith("tuple"):
        return name
    components = ",".join(_type(one) for one in parameter["components"])
    return f"({components}){name.removeprefix('tuple')}"


def _element(array: Mapping[str, Any]) -> dict[str, Any]:
    """What an array's elements are."""
    kind: str = array["type"]
    return {**array, "type": kind[: kind.rindex("[")]}


def _encoded(
    where: str, parameters: Sequence[Mapping[str, Any]], arguments: Sequence[object]
) -> bytes:
    if len(arguments) != len(parameters):
        wanted = ", ".join(f"{_type(one)} {one['name']}" for one in parameters) or "nothing"
        raise ValueError(f"{where} takes {wanted}; got {len(arguments)} arguments")
    for parameter, argument in zip(parameters, arguments, strict=True):
        _check(f"{where}: {parameter['name']}", parameter, argument)
    return abi_encode([_type(one) for one in parameters], list(arguments))


def _check(where: str, parameter: Mapping[str, Any], argument: object) -> None:
    """Raises ValueError, naming the component of a tuple that does not fit."""
    kind = _type(parameter)
    if "components" in parameter and not kind.endswith("]"):
        components = parameter["components"]
        if not isinstance(argument, (tuple, list)) or len(argument) != len(components):
            names = ", ".join(one["name"] for one in components)
            raise ValueError(f"{where}: must be the sequence ({names})")
        for component, value in zip(components, argument, strict=True):
            _check(f"{where}.{component['name']}", component, value)
        return
    if kind.endswith("]") and isinstance(argument, (tuple, list)):
        element = _element(parameter)
        for place, value in enumerate(argument):
            _check(f"{where}[{place}]", element, value)
    # eth-abi fills up what is too short, at the end where nobody meant it.
    if kind == "bytes32" and isinstance(argument, bytes) and len(argument) != 32:
        raise ValueError(f"{where}: bytes32 has 32 bytes, this has {len(argument)}")
    try:
        abi_encode([kind], [argument])
    except (EncodingError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {argument!r} is no {kind}") from error


def _decoded(where: str, parameters: Sequence[Mapping[str, Any]], data: bytes) -> tuple[Any, ...]:
    try:
        # A string is read as bytes: whoever calls a contract may say what is no UTF-8.
        values = abi_decode([_type(one).replace("string", "bytes") for one in parameters], data)
    except (DecodingError, OverflowError, ValueError) as error:
        raise ValueError(f"{where} malformed data") from error
    return tuple(map(_with_addresses, parameters, values))


def _with_addresses(parameter: Mapping[str, Any], value: Any) -> Any:
    """eth-abi decodes addresses as text, with us they are bytes; a string is text at any cost."""
    kind: str = parameter["type"]
    if kind.endswith("]"):
        element = _element(parameter)
        return tuple(_with_addresses(element, one) for one in value)
    if kind == "tuple":
        return tuple(map(_with_addresses, parameter["components"], value))
    if kind == "string":
        return value.decode(errors="replace")
    return address_of(value) if kind == "address" else value
