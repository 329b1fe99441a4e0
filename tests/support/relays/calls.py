"""Calls of the four contracts, encoded by eth-abi from the compiled ABI without ltzd's code."""

import json
from functools import cache
from importlib import resources
from typing import Any

from eth_abi.abi import decode, encode
from eth_hash.auto import keccak

_WORD = 32


@cache
def abi_of(contract: str) -> list[dict[str, Any]]:
    compiled = resources.files("ltzd.chain").joinpath(f"compiled/{contract}.json")
    entries: list[dict[str, Any]] = json.loads(compiled.read_text(encoding="utf-8"))["abi"]
    return entries


def call(contract: str, function: str, *arguments: object) -> bytes:
    """`function` is a name, or a name with its types where several share it."""
    name, types, _ = _function(contract, function)
    return selector(f"{name}({','.join(types)})") + encode(types, arguments)


def answer(contract: str, function: str, data: bytes) -> tuple[Any, ...]:
    values: tuple[Any, ...] = decode(_function(contract, function)[2], data)
    return values


def several(contract: str, *calls: bytes) -> bytes:
    """Encodes a multicall."""
    return call(contract, "multicall", calls)


def selector(signature: str) -> bytes:
    return bytes(keccak(signature.encode())[:4])


def role(name: str) -> bytes:
    return bytes(keccak(f"{name}_ROLE".encode()))


def word(data: bytes, number: int) -> slice:
    """Returns the position of an argument word in a call's data."""
    start = 4 + number * _WORD
    assert len(data) >= start + _WORD
    return slice(start, start + _WORD)


def with_word(data: bytes, number: int, value: int) -> bytes:
    """Replaces one argument word of the call."""
    where = word(data, number)
    return data[: where.start] + value.to_bytes(_WORD, "big") + data[where.stop :]


def word_in(data: bytes, number: int) -> int:
    return int.from_bytes(data[word(data, number)], "big")


@cache
def _function(contract: str, wanted: str) -> tuple[str, list[str], list[str]]:
    (entry,) = [
        (str(entry["name"]), types, _types(entry["outputs"]))
        for entry in abi_of(contract)
        if entry["type"] == "function"
        and (types := _types(entry["inputs"])) is not None
        and wanted in {entry["name"], f"{entry['name']}({','.join(types)})"}
    ]
    return entry


def _types(parameters: list[dict[str, Any]]) -> list[str]:
    return [_type(parameter) for parameter in parameters]


def _type(parameter: dict[str, Any]) -> str:
    kind = str(parameter["type"])
    if not kind.startswith("tuple"):
        return kind
    return f"({','.join(_types(parameter['components']))}){kind.removeprefix('tuple')}"
