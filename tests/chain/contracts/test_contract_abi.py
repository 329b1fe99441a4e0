"""Cold calls equal web3's on the compiled ABI; an invalid argument is refused by its name."""

import contextlib
from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st
from web3 import Web3
from web3.types import LogReceipt

from ltzd.chain.contracts import artifacts, contract_abi
from ltzd.values import Address, bytes_of, checksummed, hex_of

BRAND, PAYOUT = Address(b"\x0b" * 20), Address(b"\x0c" * 20)
GOOD = (BRAND, PAYOUT, 5, 0, 1, 3, True, False)

web3 = {
    name: Web3().eth.contract(abi=artifacts.artifact(name)["abi"]) for name in artifacts.CONTRACTS
}

addresses = st.binary(min_size=20, max_size=20).map(Address)


def uints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


params = st.tuples(
    addresses, addresses, uints(96), uints(32), uints(16), uints(16), st.booleans(), st.booleans()
)


@given(params, st.text(max_size=80))
def test_a_call_with_a_tuple_and_text_is_web3s(given: tuple[Any, ...], uri: str) -> None:
    theirs = (checksummed(given[0]), checksummed(given[1]), *given[2:])

    ours = contract_abi.encode_call("PerkNFT", "createCollection", given, uri)

    assert ours == bytes_of(web3["PerkNFT"].encode_abi("createCollection", [theirs, uri]))


def is_unique(contract: str, function: str) -> bool:
    return [entry.get("name") for entry in artifacts.artifact(contract)["abi"]].count(function) == 1


@pytest.mark.parametrize("contract", artifacts.CONTRACTS)
def test_every_functions_selector_and_every_events_topic_is_web3s(contract: str) -> None:
    for function in web3[contract].all_functions():
        (entry,) = [
            entry
            for entry in artifacts.artifact(contract)["abi"]
            if entry["type"] == "function" and artifacts.signature(entry) == function.signature
        ]
        if is_unique(contract, entry["name"]):
            selector = artifacts.selector(contract, entry["name"])
            assert selector == Web3.keccak(text=function.signature)[:4]
    for event in web3[contract].all_events():
        assert contract_abi.event_topic(contract, event.event_name) == bytes_of(event().topic)


@pytest.mark.parametrize("contract", artifacts.CONTRACTS)
def test_a_deployment_is_web3s(contract: str) -> None:
    compiled = artifacts.artifact(contract)
    factory = Web3().eth.contract(abi=compiled["abi"], bytecode=compiled["bytecode"])
    arguments = (BRAND, 5) if contract == "LTZ" else (PAYOUT, BRAND, 5)
    theirs = [
        checksummed(argument) if isinstance(argument, bytes) else argument for argument in arguments
    ]

    ours = contract_abi.creation_code(contract, *arguments)

    assert ours == bytes_of(factory.constructor(*theirs).data_in_transaction)


def test_an_address_is_given_as_bytes_or_as_checksummed_text() -> None:
    role = contract_abi.role_id("MINTER")

    as_bytes = contract_abi.encode_call("LTZ", "grantRole", role, BRAND)

    assert as_bytes == contract_abi.encode_call("LTZ", "grantRole", role, checksummed(BRAND))
    assert as_bytes[4:36] == Web3.keccak(text="MINTER_ROLE")


@pytest.mark.parametrize(
    "arguments",
    [
        (GOOD,),
        (GOOD[:-1], ""),
        (("0x12", *GOOD[1:]), ""),
        ((*GOOD[:4], 2**16, *GOOD[5:]), ""),
        ((*GOOD[:2], -1, *GOOD[3:]), ""),
        ((*GOOD[:2], 1.5, *GOOD[3:]), ""),
        ((*GOOD[:6], 1, False), ""),
        (GOOD, 7),
    ],
)
def test_an_argument_that_does_not_fit_is_a_value_error(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"PerkNFT\.createCollection does not take"):
        contract_abi.encode_call("PerkNFT", "createCollection", *arguments)


@pytest.mark.parametrize("role", [b"", b"MINTER", bytes(33)])
def test_bytes_are_never_padded(role: bytes) -> None:
    with pytest.raises(ValueError, match=r"LTZ\.grantRole does not take"):
        contract_abi.encode_call("LTZ", "grantRole", role, BRAND)


@pytest.mark.parametrize("reference", [b"", bytes(31), bytes(33)])
def test_bytes_in_a_list_of_tuples_are_never_padded(reference: bytes) -> None:
    good, bad = (BRAND, 1, bytes(32)), (BRAND, 1, reference)
    with pytest.raises(ValueError, match=r"LTZ\.mintRewardBatch does not take"):
        contract_abi.encode_call("LTZ", "mintRewardBatch", [good, bad])


def test_a_name_that_two_functions_share_needs_its_signature() -> None:
    signature = "safeTransferFrom(address,address,uint256)"
    with pytest.raises(KeyError, match="several functions safeTransferFrom"):
        artifacts.selector("PerkNFT", "safeTransferFrom")

    call = contract_abi.encode_call("PerkNFT", signature, BRAND, PAYOUT, 1)

    assert call[:4] == Web3.keccak(text=signature)[:4]


def test_an_unknown_contract_or_function_is_refused() -> None:
    with pytest.raises(KeyError):
        artifacts.artifact("../LTZ")
    with pytest.raises(KeyError):
        artifacts.selector("LTZ", "pause")
    with pytest.raises(ValueError, match=r"LTZ\.pause"):
        contract_abi.encode_call("LTZ", "pause")


def test_an_answer_is_decoded_with_addresses_as_bytes() -> None:
    info = (GOOD, 9, "ipfs://perks/")
    answer = encode(
        ["((address,address,uint96,uint32,uint16,uint16,bool,bool),uint32,string)"], [info]
    )

    assert contract_abi.decode_result("PerkNFT", "collection", answer) == (info,)


@given(st.binary(max_size=700), st.sampled_from(["collection", "ownerOf", "chargesOf"]))
def test_a_nonsense_answer_is_a_value_error(data: bytes, function: str) -> None:
    with contextlib.suppress(ValueError):
        contract_abi.decode_result("PerkNFT", function, data)


@given(uints(256), addresses, params, st.text(max_size=80))
def test_a_log_is_decoded_as_web3_does(
    collection: int, brand: Address, given: tuple[Any, ...], uri: str
) -> None:
    kind = "(address,address,uint96,uint32,uint16,uint16,bool,bool)"
    topics = [
        contract_abi.event_topic("PerkNFT", "CollectionCreated"),
        collection.to_bytes(32, "big"),
        bytes(12) + brand,
    ]
    data = encode([kind, "string"], [given, uri])

    event = contract_abi.decode_log(
        "PerkNFT", {"topics": [hex_of(topic) for topic in topics], "data": hex_of(data)}
    )

    theirs = (
        web3["PerkNFT"]
        .events.CollectionCreated()
        .process_log(
            LogReceipt(
                {
                    "address": checksummed(Address(bytes(20))),  # type: ignore[typeddict-item]
                    "topics": topics,  # type: ignore[typeddict-item]
                    "data": data,  # type: ignore[typeddict-item]
                    "blockNumber": 1,  # type: ignore[typeddict-item]
                    "blockHash": bytes(32),  # type: ignore[typeddict-item]
                    "logIndex": 0,
                    "transactionIndex": 0,
                    "transactionHash": bytes(32),  # type: ignore[typeddict-item]
                    "removed": False,
                }
            )
        )
    )
    assert event is not None
    assert event.name == theirs["event"]
    assert list(event.arguments) == ["collectionId", "brand", "params", "uri"]
    assert event.arguments["collectionId"] == theirs["args"]["collectionId"]
    assert checksummed(event.arguments["brand"]) == theirs["args"]["brand"]
    assert event.arguments["params"][2:] == tuple(theirs["args"]["params"].values())[2:]
    assert event.arguments["uri"] == theirs["args"]["uri"]


@pytest.mark.parametrize(
    "log",
    [
        {},
        {"topics": None, "data": "0x"},
        {"topics": ["0x12"], "data": "0x"},
        {"topics": [hex_of(contract_abi.event_topic("PerkNFT", "Transfer"))], "data": None},
        {
            "topics": [
                hex_of(contract_abi.event_topic("PerkNFT", "ChargeRedeemed")),
                *["0x" + "11" * 32] * 3,
            ],
            "data": "0x",
        },
    ],
)
def test_a_malformed_log_is_a_value_error(log: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each case has its own text
        contract_abi.decode_log("PerkNFT", log)


def test_a_log_of_no_event_of_the_contract_is_none() -> None:
    assert contract_abi.decode_log("LTZ", {"topics": [], "data": "0x"}) is None
    assert contract_abi.decode_log("LTZ", {"topics": ["0x" + "11" * 32], "data": "0x"}) is None
