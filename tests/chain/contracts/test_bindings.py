"""Every call that we encode and every log that we read, by hand, is as web3 has it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given, settings
from hypothesis import strategies as st
from web3 import Web3
from web3.types import LogReceipt

from ltzd.chain.contracts import abi, business_escrow, ltz, perk_nft, points_sale, relayed
from ltzd.chain.contracts.business_escrow import Deal, DealStatus
from ltzd.chain.contracts.perk_nft import Charges
from ltzd.chain.typed_data import Buy, Claim, Permit, Refund, Release, TransferWithAuthorization
from ltzd.rules.indexer import contract_facts
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.values import Address, bytes_of, checksummed, hash_of, hex_of

AT = Address(b"\x17" * 20)
BLOCK, TRANSACTION = "0x" + "b1" * 32, "0x" + "7a" * 32
PLACE = LogPosition(9, hash_of(BLOCK), 3, hash_of(TRANSACTION))

web3 = {name: Web3().eth.contract(abi=abi.compiled(name)["abi"]) for name in abi.CONTRACTS}

addresses = st.binary(min_size=20, max_size=20).map(Address)
words = st.binary(min_size=32, max_size=32)
signatures = st.binary(min_size=65, max_size=65)


def uints(bits: int = 256) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def theirs(contract: str, function: str, *arguments: Any) -> bytes:
    shown = [
        checksummed(Address(one)) if isinstance(one, bytes) and len(one) == 20 else one
        for one in arguments
    ]
    return bytes_of(web3[contract].encode_abi(function, shown))


def vrs(signature: bytes) -> tuple[int, bytes, bytes]:
    return signature[64], signature[:32], signature[32:64]


@given(addresses, uints(), uints(), uints(), words)
def test_claim_for_and_buy_for(
    user: Address, which: int, most: int, count: int, reference: bytes
) -> None:
    given_here = (user, which, most, count, reference)

    assert perk_nft.claim_for_call(*given_here) == theirs("PerkNFT", "claimFor", *given_here)
    assert points_sale.buy_for_call(*given_here) == theirs("PointsSale", "buyFor", *given_here)


@given(uints(), addresses, uints(), uints(), words)
def test_redeem_charge(
    token: int, holder: Address, amount: int, expected: int, reference: bytes
) -> None:
    given_here = (token, holder, amount, expected, reference)

    ours = perk_nft.redeem_charge_call(*given_here)

    assert ours == theirs("PerkNFT", "redeemCharge", *given_here)


@settings(max_examples=30)
@given(addresses, uints(), uints(), uints(), words, uints(), signatures)
def test_calls_with_a_users_signature(
    user: Address, which: int, a: int, b: int, reference: bytes, deadline: int, signature: bytes
) -> None:
    signed = (user, which, a, b, reference, deadline)

    claim = perk_nft.claim_with_sig_call(Claim(*signed), signature)
    buy = points_sale.buy_with_sig_call(Buy(*signed), signature)

    assert claim == theirs("PerkNFT", "claimWithSig", *signed, signature)
    assert buy == theirs("PointsSale", "buyWithSig", *signed, signature)


@settings(max_examples=30)
@given(addresses, addresses, uints(), uints(40), words, signatures)
def test_calls_of_a_deal(
    user: Address, business: Address, amount: int, at: int, deal: bytes, signature: bytes
) -> None:
    escrow = business_escrow
    named: list[tuple[bytes, str, tuple[Any, ...]]] = [
        (
            escrow.lock_for_call(user, business, amount, at, deal),
            "lockFor",
            (user, business, amount, at, deal),
        ),
        (
            escrow.release_with_sig_call(Release(deal, at), signature),
            "releaseWithSig",
            (deal, at, signature),
        ),
        (
            escrow.refund_with_sig_call(Refund(deal, at), signature),
            "refundWithSig",
            (deal, at, signature),
        ),
        (escrow.reclaim_call(deal), "reclaim", (deal,)),
        (escrow.deal_call(deal), "deal", (deal,)),
        (escrow.is_business_call(business), "isBusiness", (business,)),
    ]
    for ours, function, arguments in named:
        assert ours == theirs("BusinessEscrow", function, *arguments)


@settings(max_examples=30)
@given(addresses, addresses, uints(), uints(), uints(), words, signatures)
def test_calls_of_ltz(
    owner: Address, to: Address, value: int, after: int, before: int, nonce: bytes, signature: bytes
) -> None:
    permit = Permit(owner, to, value, 5, before)
    transfer = TransferWithAuthorization(owner, to, value, after, before, nonce)
    named: list[tuple[bytes, str, tuple[Any, ...]]] = [
        (
            ltz.permit_call(permit, signature),
            "permit",
            (owner, to, value, before, *vrs(signature)),
        ),
        (
            ltz.transfer_with_authorization_call(transfer, signature),
            "transferWithAuthorization",
            (owner, to, value, after, before, nonce, *vrs(signature)),
        ),
        (ltz.transfer_from_call(owner, to, value), "transferFrom", (owner, to, value)),
        (ltz.balance_of_call(owner), "balanceOf", (owner,)),
        (ltz.allowance_call(owner, to), "allowance", (owner, to)),
        (ltz.nonces_call(owner), "nonces", (owner,)),
    ]
    for ours, function, arguments in named:
        assert ours == theirs("LTZ", function, *arguments)
    permit_ltz = relayed.permit_ltz_call(permit, signature)
    for contract in abi.CONTRACTS[1:]:
        expected = theirs(contract, "permitLTZ", owner, value, before, *vrs(signature))
        assert permit_ltz == expected


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_a_multicall(calls: list[bytes]) -> None:
    for contract in abi.CONTRACTS:
        assert relayed.multicall(calls) == theirs(contract, "multicall", calls)


@settings(max_examples=30)
@given(uints(), addresses, words)
def test_reads(number: int, holder: Address, reference: bytes) -> None:
    assert perk_nft.charges_of_call(number) == theirs("PerkNFT", "chargesOf", number)
    assert perk_nft.claims_of_call(holder, number) == theirs("PerkNFT", "claimsOf", holder, number)
    assert perk_nft.owner_of_call(number) == theirs("PerkNFT", "ownerOf", number)
    ours = points_sale.is_order_placed_call(holder, reference)
    assert ours == theirs("PointsSale", "isOrderPlaced", holder, reference)


@given(addresses, uints(96), addresses, uints(40), st.sampled_from(DealStatus), uints(16))
def test_answers(
    user: Address, amount: int, business: Address, at: int, status: DealStatus, count: int
) -> None:
    deal = encode(
        ["(address,uint96,address,uint40,uint8)"], [(user, amount, business, at, int(status))]
    )

    assert business_escrow.decode_deal(deal) == Deal(user, amount, business, at, status)
    assert perk_nft.decode_owner(encode(["address"], [user])) == user
    assert perk_nft.decode_claims(encode(["uint256"], [count])) == count
    charges = encode(["uint256", "uint256"], [count, 3])
    assert perk_nft.decode_charges(charges) == Charges(count, 3)
    assert ltz.decode_uint(encode(["uint256"], [amount])) == amount
    assert business_escrow.decode_is_business(encode(["bool"], [True])) is True
    assert points_sale.decode_is_order_placed(encode(["bool"], [False])) is False


DECODERS: list[Callable[[bytes], object]] = [
    business_escrow.decode_deal,
    business_escrow.decode_is_business,
    ltz.decode_uint,
    perk_nft.decode_charges,
    perk_nft.decode_claims,
    perk_nft.decode_owner,
    points_sale.decode_is_order_placed,
]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("answer", [b"", b"\x01", bytes(31), bytes(33), bytes(1000)])
def test_an_answer_of_another_length_is_a_value_error(
    decoder: Callable[[bytes], object], answer: bytes
) -> None:
    with pytest.raises(ValueError, match="too"):
        decoder(answer)


@pytest.mark.parametrize("decoder", [one for one in DECODERS if one is not ltz.decode_uint])
def test_an_answer_with_dirty_bits_is_a_value_error(decoder: Callable[[bytes], object]) -> None:
    for length in (32, 64, 160):
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own text
            decoder(b"\xff" * length)


@given(st.binary(max_size=200), st.sampled_from(DECODERS))
def test_no_answer_raises_anything_else(answer: bytes, decoder: Callable[[bytes], object]) -> None:
    with suppress(ValueError):
        decoder(answer)


def test_a_token_knows_its_collection() -> None:
    assert perk_nft.token_id(7, 9) == 7 << 32 | 9
    assert perk_nft.collection_of(perk_nft.token_id(7, 2**32 - 1)) == 7


@pytest.mark.parametrize(
    "call",
    [
        lambda: perk_nft.claim_for_call(Address(bytes(19)), 1, 1, 1, bytes(32)),
        lambda: perk_nft.claim_for_call(AT, -1, 1, 1, bytes(32)),
        lambda: perk_nft.claim_for_call(AT, 2**256, 1, 1, bytes(32)),
        lambda: perk_nft.claim_for_call(AT, 1, 1, 1, bytes(31)),
        lambda: business_escrow.lock_for_call(AT, AT, 1, 2**40, bytes(32)),
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
    return {"address": addresses, "bool": st.booleans(), "bytes32": words, "string": st.text()}[
        kind
    ]


def declared(contract: str, event: str) -> list[dict[str, Any]]:
    entries = abi.compiled(contract)["abi"]
    found: list[dict[str, Any]] = next(
        one["inputs"] for one in entries if one["type"] == "event" and one["name"] == event
    )
    return found


def a_log(topics: list[bytes], data: bytes) -> dict[str, Any]:
    return {
        "address": hex_of(AT),
        "topics": [hex_of(one) for one in topics],
        "data": hex_of(data),
        "blockNumber": "0x9",
        "blockHash": BLOCK,
        "logIndex": "0x3",
        "transactionHash": TRANSACTION,
    }


def the_log(contract: str, event: str, values: Mapping[str, Any]) -> tuple[list[bytes], bytes]:
    inputs = declared(contract, event)
    topics = [abi.topic(contract, event)]
    topics += [encode([one["type"]], [values[one["name"]]]) for one in inputs if one["indexed"]]
    plain = [one for one in inputs if not one["indexed"]]
    return topics, encode([abi._type(one) for one in plain], [values[one["name"]] for one in plain])


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
    said = web3[contract].events[event]().process_log(LogReceipt(**receipt))["args"]  # type: ignore[typeddict-item]
    return [plainly(said[one["name"]]) for one in declared(contract, event)]


def plainly(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("0x") and len(value) == 42:
        return bytes_of(value.lower())
    if isinstance(value, Mapping):
        return [plainly(one) for one in value.values()]
    return list(map(plainly, value)) if isinstance(value, (list, tuple)) else value


def flat(values: list[Any], event: str) -> list[Any]:
    """In the order of our facts: a tuple's components stand beside the other arguments."""
    if event == "CollectionCreated":
        number, _, params, uri = values
        return [number, *params, uri]
    found: list[Any] = []
    for one in values:
        found += one if isinstance(one, list) else [one]
    return found


@pytest.mark.parametrize(("contract", "event", "decoder"), EVENTS)
@given(st.data())
def test_a_log_is_read_as_web3_reads_it(
    contract: str, event: str, decoder: Decoder, data: st.DataObject
) -> None:
    values = {one["name"]: data.draw(value_of(one)) for one in declared(contract, event)}
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

    def one(parameter: dict[str, Any]) -> Any:
        if parameter["type"] == "tuple":
            return tuple(map(one, parameter["components"]))
        return example[parameter["type"]]

    return the_log(contract, event, {each["name"]: one(each) for each in declared(contract, event)})


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
    role = abi.topic("PerkNFT", "RoleGranted")

    assert decoder(a_log([role, bytes(32), bytes(32), bytes(32)], b"")) is None
    assert decoder(a_log([], b"")) is None


def test_every_fact_has_its_event() -> None:
    unions = (contract_facts.PerkFact, contract_facts.SaleFact, contract_facts.EscrowFact)
    assert sum(len(union.__args__) for union in unions) == len(EVENTS)


@pytest.mark.parametrize(
    ("said", "kept"), [(b"ipfs://\xff\xfe", "ipfs://\ufffd\ufffd"), (b"a\x00b", "ab"), (b"", "")]
)
def test_a_uri_that_is_no_text_does_not_hide_its_collection(said: bytes, kept: str) -> None:
    wallet = "0x" + "11" * 20
    kind = "(address,address,uint96,uint32,uint16,uint16,bool,bool)"
    data = encode([kind, "bytes"], [(wallet, wallet, 1, 2, 3, 4, True, False), said])
    topics = [abi.topic("PerkNFT", "CollectionCreated"), (7).to_bytes(32, "big"), bytes(32)]

    created = perk_nft.decode_log(a_log(topics, data))

    assert isinstance(created, contract_facts.CollectionCreated)
    assert (created.collection_id, created.uri) == (7, kept)
