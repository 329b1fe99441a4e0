"""Every call encoded and every log decoded by hand equals web3's."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple, fields
from web3 import Web3
from web3.types import LogReceipt

from ltzd.chain.contracts import (
    artifacts,
    business_escrow,
    contract_abi,
    ltz,
    perk_nft,
    points_sale,
    relayed,
)
from ltzd.chain.contracts.business_escrow import Deal, DealStatus
from ltzd.chain.typed_data import Permit
from ltzd.rules.indexer import contract_facts
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.values import Address, bytes_of, checksummed, hash_of, hex_of

AT = Address(b"\x17" * 20)
BLOCK, TRANSACTION = "0x" + "b1" * 32, "0x" + "7a" * 32
PLACE = LogPosition(9, hash_of(BLOCK), 3, hash_of(TRANSACTION))

web3 = {
    name: Web3().eth.contract(abi=artifacts.artifact(name)["abi"]) for name in artifacts.CONTRACTS
}

addresses = st.binary(min_size=20, max_size=20).map(Address)
words = st.binary(min_size=32, max_size=32)
signatures = st.binary(min_size=65, max_size=65)


def uints(bits: int = 256) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def by_web3_call(contract: str, function: str, *arguments: Any) -> bytes:
    shown = [
        checksummed(Address(argument))
        if isinstance(argument, bytes) and len(argument) == 20
        else argument
        for argument in arguments
    ]
    return bytes_of(web3[contract].encode_abi(function, shown))


def vrs(signature: bytes) -> tuple[int, bytes, bytes]:
    return signature[64], signature[:32], signature[32:64]


@given(addresses, uints(), uints(), uints(), words)
def test_claim_for_and_buy_for(
    user: Address, which: int, most: int, count: int, reference: bytes
) -> None:
    given_here = (user, which, most, count, reference)

    assert perk_nft.claim_for_call(*given_here) == by_web3_call("PerkNFT", "claimFor", *given_here)
    assert points_sale.buy_for_call(*given_here) == by_web3_call(
        "PointsSale", "buyFor", *given_here
    )


@given(uints(), addresses, uints(), uints(), words)
def test_redeem_charge(
    token: int, holder: Address, amount: int, expected: int, reference: bytes
) -> None:
    given_here = (token, holder, amount, expected, reference)

    ours = perk_nft.redeem_charge_call(*given_here)

    assert ours == by_web3_call("PerkNFT", "redeemCharge", *given_here)


@settings(max_examples=30)
@given(addresses, addresses, uints(), uints(), signatures)
def test_calls_of_ltz(
    owner: Address, to: Address, value: int, before: int, signature: bytes
) -> None:
    permit = Permit(owner, to, value, 5, before)
    named: list[tuple[bytes, str, tuple[Any, ...]]] = [
        (
            ltz.permit_call(permit, signature),
            "permit",
            (owner, to, value, before, *vrs(signature)),
        ),
        (ltz.balance_of_call(owner), "balanceOf", (owner,)),
        (ltz.allowance_call(owner, to), "allowance", (owner, to)),
        (ltz.nonces_call(owner), "nonces", (owner,)),
    ]
    for ours, function, arguments in named:
        assert ours == by_web3_call("LTZ", function, *arguments)
    permit_ltz = relayed.permit_ltz_call(permit, signature)
    for contract in artifacts.CONTRACTS[1:]:
        expected = by_web3_call(contract, "permitLTZ", owner, value, before, *vrs(signature))
        assert permit_ltz == expected


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_a_multicall(calls: list[bytes]) -> None:
    for contract in artifacts.CONTRACTS:
        assert relayed.multicall(calls) == by_web3_call(contract, "multicall", calls)


@settings(max_examples=30)
@given(uints(), addresses, words)
def test_reads(number: int, holder: Address, deal: bytes) -> None:
    assert perk_nft.claims_of_call(holder, number) == by_web3_call(
        "PerkNFT", "claimsOf", holder, number
    )
    assert perk_nft.collection_call(number) == by_web3_call("PerkNFT", "collection", number)
    assert points_sale.item_call(number) == by_web3_call("PointsSale", "item", number)
    assert business_escrow.deal_call(deal) == by_web3_call("BusinessEscrow", "deal", deal)


@given(addresses, uints(96), addresses, uints(40), st.sampled_from(DealStatus), uints(16))
def test_answers(
    user: Address, amount: int, business: Address, at: int, status: DealStatus, count: int
) -> None:
    deal = encode(
        ["(address,uint96,address,uint40,uint8)"], [(user, amount, business, at, int(status))]
    )

    assert business_escrow.decode_deal(deal) == Deal(user, amount, business, at, status)
    assert perk_nft.decode_claims(encode(["uint256"], [count])) == count
    assert ltz.decode_uint(encode(["uint256"], [amount])) == amount


@given(addresses, addresses, uints(96), uints(32), uints(16), st.booleans(), uints(32), st.text())
def test_offers(
    brand: Address,
    payout: Address,
    price: int,
    stock: int,
    most: int,
    flag: bool,
    sold: int,
    uri: str,
) -> None:
    params = (brand, payout, price, stock, most, 3, flag, not flag)
    collection = encode(
        [
            "((address,address,uint96,uint32,uint16,uint16,bool,bool),uint32,string)",
        ],
        [(params, sold, uri)],
    )
    item = encode(
        ["(address,uint96,uint32,uint32,uint16,bool,bool)", "address"],
        [(payout, price, stock, sold, most, flag, not flag), brand],
    )

    assert astuple(perk_nft.decode_collection(collection)) == (*params, sold)
    assert astuple(points_sale.decode_item(item)) == (
        payout, price, stock, sold, most, flag, not flag, brand
    )  # fmt: skip


DECODERS: list[Callable[[bytes], object]] = [
    business_escrow.decode_deal,
    ltz.decode_uint,
    perk_nft.decode_claims,
    points_sale.decode_item,
]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("answer", [b"", b"\x01", bytes(31), bytes(33), bytes(1000)])
def test_an_answer_of_another_length_is_a_value_error(
    decoder: Callable[[bytes], object], answer: bytes
) -> None:
    with pytest.raises(ValueError, match="too"):
        decoder(answer)


@pytest.mark.parametrize(
    "decoder", [decoder_ for decoder_ in DECODERS if decoder_ is not ltz.decode_uint]
)
def test_an_answer_with_dirty_bits_is_a_value_error(decoder: Callable[[bytes], object]) -> None:
    for length in (32, 64, 160):
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own text
            decoder(b"\xff" * length)


@given(st.binary(max_size=200), st.sampled_from(DECODERS))
def test_no_answer_raises_anything_else(answer: bytes, decoder: Callable[[bytes], object]) -> None:
    with suppress(ValueError):
        decoder(answer)


@pytest.mark.parametrize(
    "call",
    [
        lambda: perk_nft.claim_for_call(Address(bytes(19)), 1, 1, 1, bytes(32)),
        lambda: perk_nft.claim_for_call(AT, -1, 1, 1, bytes(32)),
        lambda: perk_nft.claim_for_call(AT, 2**256, 1, 1, bytes(32)),
        lambda: perk_nft.claim_for_call(AT, 1, 1, 1, bytes(31)),
        lambda: business_escrow.deal_call(bytes(33)),
        lambda: relayed.permit_ltz_call(Permit(AT, AT, 1, 1, 1), bytes(64)),
    ],
)
def test_what_an_argument_cannot_hold_is_a_value_error(call: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own text
        call()


Decoder = Callable[[Mapping[str, Any]], Any]
EVENTS: list[tuple[str, str, Decoder]] = [
    *(
        ("PerkNFT", event, perk_nft.decode_log)
        for event in (
            "Transfer",
            "Claimed",
            "ChargeRedeemed",
            "CollectionCreated",
            "CollectionUpdated",
            "CollectionBrandSet",
        )
    ),
    ("PointsSale", "ItemSet", points_sale.decode_log),
    ("PointsSale", "Purchased", points_sale.decode_log),
    *(
        ("BusinessEscrow", event, business_escrow.decode_log)
        for event in ("Locked", "Released", "Refunded", "Split")
    ),
]


def value_of(parameter: dict[str, Any]) -> st.SearchStrategy[Any]:
    kind: str = parameter["type"]
    if kind == "tuple":
        return st.tuples(*map(value_of, parameter["components"]))
    if kind.startswith("uint"):
        return uints(int(kind.removeprefix("uint")))
    return {
        "address": addresses,
        "bool": st.booleans(),
        "bytes32": words,
        # NUL has a test of its own: PostgreSQL's text cannot hold it.
        "string": st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    }[kind]


def declared(contract: str, event: str) -> list[dict[str, Any]]:
    entries = artifacts.artifact(contract)["abi"]
    inputs: list[dict[str, Any]] = next(
        entry["inputs"] for entry in entries if entry["type"] == "event" and entry["name"] == event
    )
    return inputs


def a_log(topics: list[bytes], data: bytes) -> dict[str, Any]:
    return {
        "address": hex_of(AT),
        "topics": [hex_of(topic) for topic in topics],
        "data": hex_of(data),
        "blockNumber": "0x9",
        "blockHash": BLOCK,
        "logIndex": "0x3",
        "transactionHash": TRANSACTION,
    }


def the_log(contract: str, event: str, values: Mapping[str, Any]) -> tuple[list[bytes], bytes]:
    inputs = declared(contract, event)
    topics = [contract_abi.event_topic(contract, event)]
    topics += [
        encode([parameter["type"]], [values[parameter["name"]]])
        for parameter in inputs
        if parameter["indexed"]
    ]
    plain = [parameter for parameter in inputs if not parameter["indexed"]]
    return topics, encode(
        [artifacts.canonical_type(parameter) for parameter in plain],
        [values[parameter["name"]] for parameter in plain],
    )


def by_web3(contract: str, event: str, topics: list[bytes], data: bytes) -> list[Any]:
    receipt: dict[str, Any] = {
        "address": checksummed(AT),
        "topics": topics,
        "data": data,
        "blockNumber": 9,
        "blockHash": bytes_of(BLOCK),
        "logIndex": 3,
        "transactionIndex": 0,
        "transactionHash": bytes_of(TRANSACTION),
        "removed": False,
    }
    arguments = web3[contract].events[event]().process_log(LogReceipt(**receipt))["args"]  # type: ignore[typeddict-item]
    return [plainly(arguments[parameter["name"]]) for parameter in declared(contract, event)]


def plainly(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("0x") and len(value) == 42:
        return bytes_of(value.lower())
    if isinstance(value, Mapping):
        return [plainly(item) for item in value.values()]
    return list(map(plainly, value)) if isinstance(value, (list, tuple)) else value


def flat(values: list[Any], event: str) -> list[Any]:
    """Returns the values in the order of the facts, with the components of tuples flattened."""
    if event == "CollectionCreated":
        number, _, params, uri = values
        return [number, *params, uri]
    flat: list[Any] = []
    for item in values:
        flat += item if isinstance(item, list) else [item]
    return flat


@pytest.mark.parametrize(("contract", "event", "decoder"), EVENTS)
@given(st.data())
def test_a_log_is_read_as_web3_reads_it(
    contract: str, event: str, decoder: Decoder, data: st.DataObject
) -> None:
    values = {
        parameter["name"]: data.draw(value_of(parameter)) for parameter in declared(contract, event)
    }
    topics, body = the_log(contract, event, values)

    fact = decoder(a_log(topics, body))

    assert fact.position == PLACE
    ours = [getattr(fact, field.name) for field in fields(fact)[1:]]
    assert ours == flat(by_web3(contract, event, topics, body), event)


def the_first(contract: str, event: str) -> tuple[list[bytes], bytes]:
    example = {
        "address": bytes(AT),
        "uint256": 1,
        "uint96": 1,
        "uint40": 1,
        "uint32": 1,
        "uint16": 1,
        "bool": True,
        "bytes32": bytes(32),
        "string": "ipfs://x",
    }

    def example_of(parameter: dict[str, Any]) -> Any:
        if parameter["type"] == "tuple":
            return tuple(map(example_of, parameter["components"]))
        return example[parameter["type"]]

    return the_log(
        contract, event, {each["name"]: example_of(each) for each in declared(contract, event)}
    )


@pytest.mark.parametrize(("contract", "event", "decoder"), EVENTS)
def test_a_malformed_log_is_a_value_error(contract: str, event: str, decoder: Decoder) -> None:
    topics, body = the_first(contract, event)
    good = a_log(topics, body)
    assert decoder(good) is not None
    broken: list[dict[str, Any]] = [
        {**good, "data": "0x"},
        {**good, "data": hex_of(body[:-1])},
        {**good, "data": None},
        {**good, "data": 7},
        {**good, "topics": None},
        {**good, "topics": [*good["topics"][:1], "0x12"]},
        {**good, "topics": [*good["topics"], None]},
        {**good, "blockNumber": None},
        {**good, "blockNumber": "nine"},
        {**good, "blockHash": "0x12"},
        {**good, "logIndex": []},
        {**good, "transactionHash": 7},
        {"topics": good["topics"]},
    ]
    if event != "CollectionCreated":
        broken += [
            {**good, "data": hex_of(body + bytes(32))},
            {**good, "topics": good["topics"][:-1]},
            {**good, "topics": [*good["topics"], "0x" + "00" * 32]},
        ]
    for log in broken:
        if log != good:
            with pytest.raises(ValueError):  # noqa: PT011 - each has its own text
                decoder(log)


@pytest.mark.parametrize("decoder", [d for _, _, d in EVENTS[::4]])
def test_a_log_that_we_keep_no_record_of_is_none(decoder: Decoder) -> None:
    role = contract_abi.event_topic("PerkNFT", "RoleGranted")

    assert decoder(a_log([role, bytes(32), bytes(32), bytes(32)], b"")) is None
    assert decoder(a_log([], b"")) is None


def test_every_fact_has_its_event() -> None:
    unions = (contract_facts.PerkFact, contract_facts.SaleFact, contract_facts.EscrowFact)
    assert sum(len(union.__args__) for union in unions) == len(EVENTS)


@pytest.mark.parametrize(
    ("raw", "kept"), [(b"ipfs://\xff\xfe", "ipfs://\ufffd\ufffd"), (b"a\x00b", "ab"), (b"", "")]
)
def test_a_uri_that_is_no_text_does_not_hide_its_collection(raw: bytes, kept: str) -> None:
    wallet = "0x" + "11" * 20
    kind = "(address,address,uint96,uint32,uint16,uint16,bool,bool)"
    data = encode([kind, "bytes"], [(wallet, wallet, 1, 2, 3, 4, True, False), raw])
    topics = [
        contract_abi.event_topic("PerkNFT", "CollectionCreated"),
        (7).to_bytes(32, "big"),
        bytes(32),
    ]

    created = perk_nft.decode_log(a_log(topics, data))

    assert isinstance(created, contract_facts.CollectionCreated)
    assert (created.collection_id, created.uri) == (7, kept)
