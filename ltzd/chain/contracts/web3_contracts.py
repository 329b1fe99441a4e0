"""The compiled contracts as web3.py's contract objects, for commands that a person waits for.

Importing web3 takes a second, so this module imports it at the first call, and no module of the
daemon calls it: frequent calls are encoded by hand in the contracts' modules.

Addresses are 20 bytes in both directions. A string that is not UTF-8 is decoded with replacement
characters, because anybody may call some of the contracts.
"""

# ruff: noqa: PLC0415 - importing web3 takes a second

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ltzd.chain.contracts.artifacts import artifact, canonical_type
from ltzd.values import address_of, bytes_of, hash_of, keccak

if TYPE_CHECKING:
    from web3.contract import Contract


@dataclass(frozen=True, slots=True)
class DecodedEvent:
    """A log by the names of its event and of the event's arguments."""

    name: str
    arguments: Mapping[str, Any]


def role_id(role: str) -> bytes:
    """A role's id on chain: `MINTER` is keccak256("MINTER_ROLE"), `DEFAULT_ADMIN` is zero."""
    return bytes(32) if role == "DEFAULT_ADMIN" else keccak(f"{role}_ROLE".encode())


def encode_call(contract: str, function: str, *arguments: object) -> bytes:
    """Call data, such as `encode_call("LTZ", "grantRole", role_id("MINTER"), wallet)`.

    A function that shares its name with another one goes by its signature. Raises ValueError for an
    unknown function, and for arguments that do not fit.
    """
    from web3.exceptions import Web3Exception

    try:
        return bytes_of(_encoder(contract).encode_abi(function, args=arguments))
    except (Web3Exception, TypeError, ValueError) as error:
        raise ValueError(f"{contract}.{function} does not take these arguments: {error}") from error


def creation_code(contract: str, *arguments: object) -> bytes:
    """The data of a deployment: bytecode and encoded constructor arguments. Raises ValueError."""
    from web3.exceptions import Web3Exception

    try:
        return bytes_of(str(_encoder(contract).constructor(*arguments).data_in_transaction))
    except (Web3Exception, TypeError, ValueError) as error:
        raise ValueError(f"{contract} cannot be created with these arguments: {error}") from error


@cache
def event_topic(contract: str, event: str) -> bytes:
    """The first topic of the event's logs."""
    return bytes_of(_encoder(contract).events[event]().topic)


def decode_result(contract: str, function: str, data: bytes) -> tuple[Any, ...]:
    """The results of a function. Raises ValueError for malformed data."""
    from eth_abi.exceptions import DecodingError

    outputs = next(
        entry["outputs"]
        for entry in artifact(contract)["abi"]
        if entry["type"] == "function" and entry["name"] == function
    )
    try:
        values = _decoder(contract).w3.codec.decode(list(map(canonical_type, outputs)), data)
    except (DecodingError, OverflowError, ValueError) as error:
        raise ValueError(f"{contract}.{function} answers malformed data") from error
    return tuple(map(_with_raw_addresses, outputs, values))


def decode_log(contract: str, log: Mapping[str, Any]) -> DecodedEvent | None:
    """A log as a node returns it; None if the contract has no such event.

    Raises ValueError for a malformed log.
    """
    from eth_abi.exceptions import DecodingError
    from web3.exceptions import LogTopicError, Web3Exception

    try:
        topics = [hash_of(topic) for topic in log["topics"]]
        name = _event_names(contract).get(topics[0]) if topics else None
        if name is None:
            return None
        event = _decoder(contract).events[name]()
        entry = {**_NO_POSITION, "topics": topics, "data": bytes_of(log["data"])}
        arguments = event.process_log(entry)["args"]
        return DecodedEvent(
            name,
            {
                parameter["name"]: _with_raw_addresses(parameter, arguments[parameter["name"]])
                for parameter in event.abi["inputs"]
            },
        )
    except LogTopicError:
        return None  # ERC-20 and ERC-721 share the first topic of their transfers.
    except (
        *(DecodingError, Web3Exception, OverflowError),
        *(KeyError, TypeError, AttributeError, ValueError),
    ) as error:
        raise ValueError("the log is malformed") from error


_NO_POSITION = {
    "address": "0x",
    "blockHash": b"",
    "blockNumber": 0,
    "logIndex": 0,
    "transactionHash": b"",
    "transactionIndex": 0,
}
"""Fields that web3 copies from a log without using them."""


@cache
def _event_names(contract: str) -> Mapping[bytes, str]:
    """By first topic."""
    entries = artifact(contract)["abi"]
    names = [entry["name"] for entry in entries if entry["type"] == "event"]
    return {event_topic(contract, name): name for name in names}


@cache
def _encoder(name: str) -> "type[Contract]":
    from web3 import Web3

    compiled = artifact(name)
    return Web3().eth.contract(abi=compiled["abi"], bytecode=compiled["bytecode"])


@cache
def _decoder(name: str) -> "type[Contract]":
    """A contract whose strings need not be UTF-8. Its codec would encode too leniently."""
    from eth_abi.codec import ABICodec
    from eth_abi.decoding import StringDecoder
    from eth_abi.registry import BaseEquals, registry
    from web3 import Web3

    class TolerantStringDecoder(StringDecoder):
        def __init__(self) -> None:
            super().__init__(handle_string_errors="replace")  # type: ignore[no-untyped-call]

    tolerant: Any = registry.copy()  # type: ignore[no-untyped-call]
    tolerant.unregister_decoder("string")
    is_string = BaseEquals("string")  # type: ignore[no-untyped-call]
    tolerant.register_decoder(is_string, TolerantStringDecoder, label="string")
    web3 = Web3()
    web3.codec = ABICodec(tolerant)
    return web3.eth.contract(abi=artifact(name)["abi"])


def _with_raw_addresses(parameter: Mapping[str, Any], value: Any) -> Any:
    """web3 decodes addresses as text; ltzd's are bytes."""
    kind: str = parameter["type"]
    if kind.endswith("]"):
        element = {**parameter, "type": kind[: kind.rindex("[")]}
        return tuple(_with_raw_addresses(element, item) for item in value)
    if kind == "tuple":
        components: Sequence[Mapping[str, Any]] = parameter["components"]
        values = value.values() if isinstance(value, Mapping) else value
        return tuple(map(_with_raw_addresses, components, values))
    return address_of(value) if kind == "address" else value
