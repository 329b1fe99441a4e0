"""Only calldata of the table's functions with the user as principal passes.

The oracles are web3 with the compiled ABI, eth-account, and a table in this file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eth_abi.abi import encode
from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_utils.abi import abi_to_signature, get_abi_input_types
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from web3 import Web3

from ltzd.chain.contracts import abi_words, artifacts, contract_abi
from ltzd.chain.contracts.business_escrow import Deal, DealStatus
from ltzd.chain.relayer.calls import decode_relay
from ltzd.chain.relayer.decoding import calls_in
from ltzd.errors import ContractNotWhitelisted, ValidationFailed
from ltzd.rules.relayer.allowed_calls import ALLOWED_CALLS, AllowedCall
from ltzd.rules.relayer.calls import RelayPlan, RelayRequest, SignedPermit
from ltzd.values import Address, address_of, bytes_of, checksummed
from tests.support.relays.allowed_calls import (
    AMOUNT,
    AT,
    CHARGING,
    CONTRACTS,
    FORBIDDEN,
    MOVES,
    NONCE,
    OPERATORS,
    ROWS,
    SHOP,
    STRANGER,
    USER,
    USERS_DEAL,
    Chain,
    a_permit,
    multicall,
    permit,
    permit_for,
    permit_ltz,
    relayed,
    transfer_from,
)

# --- the oracle ----------------------------------------------------------------------------------

CLAIM = "address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,bytes32 ref,"
BUY = "address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,bytes32 ref,"
TRANSFER = (
    "address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce"
)
SIGNED = {
    "claimWithSig": ("Claim", CLAIM + "uint256 deadline"),
    "buyWithSig": ("Buy", BUY + "uint256 deadline"),
    "releaseWithSig": ("Release", "bytes32 dealId,uint256 deadline"),
    "refundWithSig": ("Refund", "bytes32 dealId,uint256 deadline"),
    "transferWithAuthorization": ("TransferWithAuthorization", TRANSFER),
}
PERMIT = "address owner,address spender,uint256 value,uint256 nonce,uint256 deadline"
ALLOWED: dict[str, dict[str, str | None]] = {
    "PerkNFT": {"claimFor": "user", "claimWithSig": "user"},
    "PointsSale": {"buyFor": "buyer", "buyWithSig": "buyer"},
    "BusinessEscrow": {
        "lockFor": "user",
        "releaseWithSig": None,
        "refundWithSig": None,
        "reclaim": None,
    },
    "LTZ": {"transferWithAuthorization": "from", "transferFrom": "from"},
}
NAMES = {address: name for name, address in AT.items()}
web3 = {
    name: Web3().eth.contract(abi=artifacts.artifact(name)["abi"]) for name in artifacts.CONTRACTS
}


@dataclass(frozen=True)
class Opened:
    function: str
    arguments: dict[str, Any]


def opened(contract: str, data: bytes) -> Opened:
    """Decodes the call with web3, and checks that web3 encodes it to the same bytes."""
    function, arguments = web3[contract].decode_function_input(data)
    again = web3[contract].encode_abi(function.abi_element_identifier, list(arguments.values()))
    assert bytes_of(again) == data, "web3 writes this differently"
    return Opened(function.fn_name, arguments)


def calls_of(contract: str, data: bytes) -> list[Opened]:
    outer = opened(contract, data)
    if outer.function != "multicall":
        return [outer]
    return [opened(contract, each) for each in outer.arguments["data"]]


def signer_of(contract: str, kind: str, types: str, values: Sequence[Any], signature: bytes) -> str:
    named = [each.split(" ") for each in types.split(",")]
    data = encode_typed_data(
        domain_data={
            "name": "Loyalty Token" if contract == "LTZ" else contract,
            "version": "1",
            "chainId": CONTRACTS.chain_id,
            "verifyingContract": checksummed(AT[contract]),
        },
        message_types={kind: [{"name": name, "type": solidity} for solidity, name in named]},
        message_data={name: value for (_, name), value in zip(named, values, strict=True)},
    )
    return str(Account.recover_message(data, signature=signature))


ME = checksummed(USER.address)


def judge_permit(contract: str, call: Opened, nonce: int, spenders: Sequence[Address]) -> None:
    """Checks that the permit is signed by the user for one of the spenders."""
    assert call.function == ("permit" if contract == "LTZ" else "permitLTZ")
    arguments = call.arguments
    spender = arguments.get("spender", checksummed(AT[contract]))
    assert arguments["owner"] == ME
    assert address_of(spender) in spenders
    signature = arguments["r"] + arguments["s"] + bytes([arguments["v"]])
    nonces = [nonce] if contract == "LTZ" else range(nonce, nonce - 9, -1)
    signers = {
        signer_of(
            "LTZ",
            "Permit",
            PERMIT,
            (arguments["owner"], spender, arguments["value"], nonce, arguments["deadline"]),
            signature,
        )
        for nonce in nonces
        if nonce >= 0
    }
    assert ME in signers


def judge_move(contract: str, call: Opened, deal: Deal) -> None:
    """Checks that the call is in the table, and that its principal and its signer are the user."""
    principal = ALLOWED[contract][call.function]
    if principal is not None:
        assert call.arguments[principal] == ME
    else:
        assert deal.status != DealStatus.NONE
        party = deal.business if call.function == "refundWithSig" else deal.user
        assert party == USER.address
    if call.function in SIGNED:
        *fields, last = call.arguments.values()
        if "sig" not in call.arguments:
            *fields, v, r = fields
            last = r + last + bytes([v])
        assert signer_of(contract, *SIGNED[call.function], fields, last) == ME


def judge(plan: RelayPlan, ask: RelayRequest, chain: Chain) -> None:
    assert plan.to == ask.to
    assert plan.user == ask.user == USER.address
    contract = NAMES[plan.to]
    *before, main = calls_of(contract, plan.data)
    assert len(before) <= 1
    assert plan.function == f"{contract}.{main.function}"
    charging = [AT[name] for name in CHARGING]
    permitted = charging if contract == "LTZ" else [plan.to]
    if main.function == "transferFrom":
        judge_spending(plan, before, main, chain)
    else:
        assert plan.wallet is None
        for call in before:
            judge_permit(contract, call, chain.nonce, permitted)
    if main.function in {"permit", "permitLTZ"}:
        assert not before
        judge_permit(contract, main, chain.nonce, permitted)
    else:
        judge_move(contract, main, chain.deal)


def judge_spending(plan: RelayPlan, before: list[Opened], main: Opened, chain: Chain) -> None:
    """Checks that an operator's wallet sends the call, and that no allowance to it remains."""
    assert plan.wallet in OPERATORS
    if before:
        judge_permit("LTZ", before[0], chain.nonce, [plan.wallet])
        assert before[0].arguments["value"] == main.arguments["value"]
    else:
        assert chain.allowance == main.arguments["value"]


# --- calldata around the table -------------------------------------------------------------------

ADDRESSES = [USER.address, STRANGER.address, SHOP, *AT.values(), *OPERATORS, Address(bytes(20))]
VALUES = {
    "address": st.sampled_from(ADDRESSES),
    "bool": st.booleans(),
    "bytes": st.binary(max_size=70),
    "bytes32": st.sampled_from([bytes(32), b"\xde" * 32, contract_abi.role_id("MINTER")]),
    "bytes4": st.just(bytes(4)),
    "bytes[]": st.lists(st.binary(max_size=40), max_size=2),
    "string": st.text(max_size=5),
}


def a_value(kind: str) -> st.SearchStrategy[Any]:
    if kind.endswith(")[]"):
        return st.lists(a_value(kind[:-2]), max_size=2)
    if kind.startswith("("):
        return st.tuples(*(a_value(part) for part in kind[1:-1].split(",")))
    if kind.startswith("uint"):
        bits = int(kind[4:])
        return st.sampled_from([0, 1, min(AMOUNT, 2**bits - 1), 2**bits - 1])
    return VALUES[kind]


def any_call_of(contract: str) -> st.SearchStrategy[bytes]:
    """Returns a call of any function of the contract."""
    functions = [each for each in artifacts.artifact(contract)["abi"] if each["type"] == "function"]
    return st.sampled_from(functions).flatmap(a_call)


def a_call(entry: Any) -> st.SearchStrategy[bytes]:
    types, head = get_abi_input_types(entry), abi_words.selector(abi_to_signature(entry))
    return st.tuples(*map(a_value, types)).map(lambda values: head + encode(types, values))


PERMITS_GIVEN = [
    a_permit(spender, value, owner, nonce)
    for spender in (AT["PerkNFT"], AT["BusinessEscrow"], OPERATORS[1], STRANGER.address)
    for value, owner, nonce in [
        (AMOUNT, USER, NONCE),
        (AMOUNT, USER, NONCE - 1),
        (AMOUNT - 1, USER, NONCE),
        (AMOUNT, STRANGER, NONCE),
    ]
] + [a_permit(OPERATORS[0], signer=STRANGER)]
GOOD: dict[str, list[bytes]] = {
    contract: [
        build(person)
        for name, build in ROWS.items()
        if name.startswith(contract)
        for person in (USER, USER, STRANGER)
    ]
    for contract in artifacts.CONTRACTS
}
NEARBY: dict[str, list[bytes]] = {
    contract: [call for each, call in FORBIDDEN if each == contract]
    + [permit(each) if contract == "LTZ" else permit_ltz(each) for each in PERMITS_GIVEN]
    for contract in artifacts.CONTRACTS
}
NEARBY["LTZ"] += [transfer_from(), transfer_from(value=AMOUNT - 1)]
STRAIGHT: dict[str, list[bytes]] = {
    contract: [build(USER) for name, build in ROWS.items() if name.startswith(contract)]
    + [
        multicall(allowing, build(USER))
        for allowing in (permit_for(contract), permit_for(contract, nonce=NONCE - 1))
        for name, build in MOVES.items()
        if name.startswith(contract)
    ]
    for contract in artifacts.CONTRACTS
}
"""Requests that pass, if the chain agrees."""
STRAIGHT["LTZ"] += [
    multicall(permit(a_permit(OPERATORS[0], nonce=NONCE - 1)), transfer_from()),
    transfer_from(),
]


def flip(data: bytes, place: int, by: int) -> bytes:
    at = place % max(len(data), 1)
    return data[:at] + bytes(byte ^ by for byte in data[at : at + 1]) + data[at + 1 :]


def cut(data: bytes, place: int, by: int) -> bytes:
    at = place % (len(data) + 1)
    return data[:at] + data[at + by :]


def insert(data: bytes, place: int, by: int) -> bytes:
    at = place % (len(data) + 1)
    return data[:at] + bytes(by) + data[at:]


def swap_words(data: bytes, place: int, by: int) -> bytes:
    rows = [data[at : at + 32] for at in range(4, len(data), 32)] or [b""]
    a, b = place % len(rows), by % len(rows)
    rows[a], rows[b] = rows[b], rows[a]
    return data[:4] + b"".join(rows)


def overwrite_address(data: bytes, place: int, by: int) -> bytes:
    at = 4 + 32 * (place % max(len(data) // 32, 1))
    return data[: at + 12] + ADDRESSES[by % len(ADDRESSES)] + data[at + 32 :]


def nest(data: bytes, place: int, by: int) -> bytes:
    return multicall(*[data] * (by % 3 + 1)) if place % 2 else multicall(data)


Mutation = Callable[[bytes], bytes]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    how = draw(st.sampled_from([flip, cut, insert, swap_words, overwrite_address, nest]))
    place, by = draw(st.integers(0, 700)), draw(st.sampled_from([1, 2, 4, 31, 32, 64, 128, 255]))
    return lambda data: how(data, place, by)


def several_mutations(count: int) -> st.SearchStrategy[list[Mutation]]:
    return st.lists(mutations(), min_size=count, max_size=count)


def shapes_of(contract: str) -> dict[str, st.SearchStrategy[bytes]]:
    near = st.sampled_from(NEARBY[contract])
    single = st.sampled_from(GOOD[contract]) | near | any_call_of(contract)
    call = single | st.tuples(single, mutations()).map(lambda both: both[1](both[0]))
    return {
        "straight": st.sampled_from(STRAIGHT[contract]),
        "one": call,
        "several": st.lists(call, max_size=4).map(lambda calls: multicall(*calls)),
        "behind": st.tuples(near, call).map(lambda both: multicall(*both)),
        "before": st.tuples(call, near).map(lambda both: multicall(*both)),
    }


SHAPES = {contract: shapes_of(contract) for contract in artifacts.CONTRACTS}


@st.composite
def datas(draw: st.DrawFn, contract: str) -> bytes:
    """Draws a call or several, most of them close to the table, some of them mutated."""
    shape = draw(st.sampled_from(["straight"] * 6 + ["one", "several", "behind", "before"]))
    data = draw(SHAPES[contract][shape])
    for mutate in draw(st.sampled_from([0, 0, 0, 0, 1, 2]).flatmap(several_mutations)):
        data = mutate(data)
    return data


@st.composite
def asks(draw: st.DrawFn) -> RelayRequest:
    contract = draw(st.sampled_from(artifacts.CONTRACTS))
    to = draw(st.sampled_from([AT[contract]] * 40 + ADDRESSES))
    beside = draw(st.sampled_from([*[None] * 60, *PERMITS_GIVEN]))
    return RelayRequest(to, draw(datas(contract)), USER.address, permit=beside)


NOBODY = Address(bytes(20))
chains = st.builds(
    Chain,
    nonce=st.sampled_from([NONCE] * 5 + [NONCE + 1, 0]),
    allowance=st.sampled_from([0, AMOUNT - 1, AMOUNT]),
    deal=st.sampled_from(
        [
            USERS_DEAL,
            replace(USERS_DEAL, user=SHOP, business=USER.address),
            replace(USERS_DEAL, user=STRANGER.address),
            Deal(NOBODY, 0, NOBODY, 0, DealStatus.NONE),
        ]
    ),
)


def test_no_call_outside_the_table_passes() -> None:
    passed: list[str] = []

    @settings(derandomize=True, deadline=None, max_examples=600)
    @given(asks(), chains)
    def whatever_passes_is_in_the_table(ask: RelayRequest, chain: Chain) -> None:
        try:
            plan = relayed(ask, chain)
        except (ContractNotWhitelisted, ValidationFailed):
            return
        judge(plan, ask, chain)
        passed.append(plan.function)

    whatever_passes_is_in_the_table()

    # At least one call must pass, or the oracle would have checked nothing.
    assert len(set(passed)) > len(ROWS) // 2


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.sampled_from(sorted(MOVES)), st.lists(mutations(), min_size=1, max_size=3), chains)
def test_a_changed_valid_call_is_refused_or_valid_itself(
    name: str, changes: list[Mutation], chain: Chain
) -> None:
    data = MOVES[name](USER)
    for change in changes:
        data = change(data)
    ask = RelayRequest(AT[name.partition(".")[0]], data, USER.address)

    try:
        plan = relayed(ask, chain)
    except ValidationFailed:
        return
    judge(plan, ask, chain)
    assert plan.data == data


selectors = st.sampled_from([call[:4] for row in GOOD.values() for call in row]) | st.just(b"")


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.sampled_from(ADDRESSES),
    st.builds(bytes.__add__, selectors, st.binary(max_size=400)),
    st.none()
    | st.builds(
        SignedPermit,
        st.sampled_from(ADDRESSES),
        st.sampled_from(ADDRESSES),
        st.integers(),
        st.integers(),
        st.binary(max_size=70),
    ),
)
def test_random_bytes_are_refused_without_another_error(
    to: Address, data: bytes, beside: SignedPermit | None
) -> None:
    try:
        relay = decode_relay(RelayRequest(to, data, USER.address, permit=beside), CONTRACTS)
        relay.plan(Chain().answers(relay), OPERATORS)
    except (ContractNotWhitelisted, ValidationFailed):
        return
    raise AssertionError(f"{data.hex()} passed")


PLAIN_VALUES = {
    "address": st.binary(min_size=20, max_size=20).map(Address),
    "uint8": st.integers(0, 2**8 - 1),
    "uint40": st.integers(0, 2**40 - 1),
    "uint256": st.integers(0, 2**256 - 1),
    "bytes32": st.binary(min_size=32, max_size=32),
    "bytes": st.binary(max_size=100),
}


@st.composite
def calls_of_the_table(draw: st.DrawFn) -> tuple[AllowedCall, dict[str, Any], bytes]:
    row = draw(st.sampled_from(ALLOWED_CALLS))
    entry = web3[row.contract].get_function_by_name(row.function).abi
    arguments = {each["name"]: draw(PLAIN_VALUES[each["type"]]) for each in entry["inputs"]}
    return (
        row,
        arguments,
        contract_abi.encode_call(row.contract, row.function, *arguments.values()),
    )


@settings(derandomize=True, deadline=None, max_examples=150)
@given(calls_of_the_table(), calls_of_the_table())
def test_calldata_of_eth_abi_is_decoded_correctly(
    first: tuple[AllowedCall, dict[str, Any], bytes],
    other: tuple[AllowedCall, dict[str, Any], bytes],
) -> None:
    for row, arguments, data in (first, other):
        for written in (data, multicall(data)):
            (call,) = calls_in(row.contract, written)
            assert (call.row, call.arguments, call.data) == (row, arguments, data)
    if first[0].contract == other[0].contract:
        both = calls_in(first[0].contract, multicall(first[2], other[2]))
        assert [call.data for call in both] == [first[2], other[2]]
