"""Calls, results and logs of the compiled contracts by their ABI, for what a person waits for.

eth-abi encodes and decodes, at some 30 µs a value: frequent calls are encoded by hand in the
contracts' modules. eth-abi takes a tenth of a second to import, so this module imports it at the
first call, and a daemon of the production roles never does.

Addresses are 20 bytes in both directions. A string that is not UTF-8 is decoded with replacement
characters, because anybody may call some of the contracts.
"""

# ruff: noqa: PLC0415 - see above

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from ltzd.chain.contracts.artifacts import artifact, bytecode, canonical_type, signature
from ltzd.values import address_of, bytes_of, hash_of, keccak

if TYPE_CHECKING:
    from eth_abi.codec import ABICodec


class DecodedEvent(msgspec.Struct, frozen=True):
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
    entries = [
        entry
        for entry in _entries(contract, "function")
        if function in (entry["name"], signature(entry))
    ]
    if len(entries) != 1:
        count = "several functions" if entries else "no function"
        raise ValueError(f"{contract}.{function}: the contract has {count} of this name")
    encoded = _encoded(
        entries[0], arguments, f"{contract}.{function} does not take these arguments"
    )
    return keccak(signature(entries[0]).encode())[:4] + encoded


def creation_code(contract: str, *arguments: object) -> bytes:
    """The data of a deployment: bytecode and encoded constructor arguments. Raises ValueError."""
    (constructor,) = _entries(contract, "constructor")
    fault = f"{contract} cannot be created with these arguments"
    return bytecode(contract) + _encoded(constructor, arguments, fault)


@cache
def event_topic(contract: str, event: str) -> bytes:
    """The first topic of the event's logs. Raises KeyError for an unknown event."""
    topics = {
        entry["name"]: keccak(signature(entry).encode()) for entry in _entries(contract, "event")
    }
    return topics[event]


def decode_result(contract: str, function: str, data: bytes) -> tuple[Any, ...]:
    """The results of a function. Raises ValueError for malformed data."""
    outputs = next(
        entry["outputs"] for entry in _entries(contract, "function") if entry["name"] == function
    )
    return _decoded(outputs, data, f"{contract}.{function} answers malformed data")


def decode_log(contract: str, log: Mapping[str, Any]) -> DecodedEvent | None:
    """A log as a node returns it; None if the contract has no such event.

    Raises ValueError for a malformed log.
    """
    fault = "the log is malformed"
    try:
        topics = [hash_of(topic) for topic in log["topics"]]
        data = bytes_of(log["data"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(fault) from error
    event = _events(contract).get(topics[0]) if topics else None
    if event is None:
        return None
    indexed = [parameter for parameter in event["inputs"] if parameter["indexed"]]
    others = [parameter for parameter in event["inputs"] if not parameter["indexed"]]
    if len(indexed) != len(topics) - 1:
        return None  # ERC-20 and ERC-721 share the first topic of their transfers.
    values = {
        parameter["name"]: value
        for parameter, topic in zip(indexed, topics[1:], strict=True)
        for value in _decoded([parameter], topic, fault)
    }
    names = [parameter["name"] for parameter in others]
    values |= zip(names, _decoded(others, data, fault), strict=True)
    names = [parameter["name"] for parameter in event["inputs"]]
    return DecodedEvent(event["name"], {name: values[name] for name in names})


def _entries(contract: str, kind: str) -> list[Mapping[str, Any]]:
    return [entry for entry in artifact(contract)["abi"] if entry["type"] == kind]


@cache
def _events(contract: str) -> Mapping[bytes, Mapping[str, Any]]:
    """By first topic."""
    return {event_topic(contract, each["name"]): each for each in _entries(contract, "event")}


def _encoded(entry: Mapping[str, Any], arguments: Sequence[object], fault: str) -> bytes:
    """Raises ValueError with `fault` and the reason."""
    from eth_abi.exceptions import EncodingError

    types = list(map(canonical_type, entry["inputs"]))
    if len(types) != len(arguments):
        raise ValueError(f"{fault}: {len(arguments)} are given in place of {len(types)}")
    try:
        return _codec().encode(types, arguments)
    except (EncodingError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{fault}: {error}") from error


def _decoded(parameters: Sequence[Mapping[str, Any]], data: bytes, fault: str) -> tuple[Any, ...]:
    """Raises ValueError with `fault`."""
    from eth_abi.exceptions import DecodingError

    try:
        values = _codec().decode(list(map(canonical_type, parameters)), data)
    except (DecodingError, OverflowError, ValueError) as error:
        raise ValueError(fault) from error
    return tuple(map(_with_raw_addresses, parameters, values))


@cache
def _codec() -> "ABICodec":
    """eth-abi's, but that it pads no bytes when it encodes, and takes any bytes for a string when
    it decodes."""
    from eth_abi.codec import ABICodec
    from eth_abi.decoding import StringDecoder
    from eth_abi.encoding import BytesEncoder
    from eth_abi.registry import BaseEquals, registry

    class ExactBytesEncoder(BytesEncoder):
        def validate_value(self, value: object) -> None:
            super().validate_value(value)  # type: ignore[no-untyped-call]
            if len(value) * 8 != self.value_bit_size:  # type: ignore[arg-type]
                self.invalidate_value(value, msg="the length differs")

    class TolerantStringDecoder(StringDecoder):
        def __init__(self) -> None:
            super().__init__(handle_string_errors="replace")  # type: ignore[no-untyped-call]

    ours: Any = registry.copy()  # type: ignore[no-untyped-call]
    ours.unregister_encoder("bytes<M>")
    sized_bytes = BaseEquals("bytes", with_sub=True)  # type: ignore[no-untyped-call]
    ours.register_encoder(sized_bytes, ExactBytesEncoder, label="bytes<M>")
    ours.unregister_decoder("string")
    text = BaseEquals("string")  # type: ignore[no-untyped-call]
    ours.register_decoder(text, TolerantStringDecoder, label="string")
    return ABICodec(ours)


def _with_raw_addresses(parameter: Mapping[str, Any], value: Any) -> Any:
    """eth-abi decodes addresses as text; ltzd's are bytes."""
    kind: str = parameter["type"]
    if kind.endswith("]"):
        element = {**parameter, "type": kind[: kind.rindex("[")]}
        return tuple(_with_raw_addresses(element, item) for item in value)
    if kind == "tuple":
        return tuple(map(_with_raw_addresses, parameter["components"], value))
    return address_of(value) if kind == "address" else value
