"""Relay requests that are allowed or refused, and the call data that is sent for them."""

from collections.abc import Callable
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.abi import abi_to_signature, get_abi_input_types
from msgspec.structs import replace

from ltzd.chain.contracts import abi_words, artifacts, contract_abi
from ltzd.chain.contracts.business_escrow import Deal, DealStatus
from ltzd.chain.relayer.calls import decode_relay
from ltzd.chain.typed_data import TypedMessage
from ltzd.errors import ContractNotWhitelisted, NodeUnavailable, ValidationFailed
from ltzd.rules.relayer.allowed_calls import ALLOWED_CALLS, functions_of
from ltzd.rules.relayer.calls import RelayRequest, RequestedClaim, SignedPermit
from ltzd.values import Address, checksummed
from tests.support.relays.allowed_calls import (
    AMOUNT,
    AT,
    CHARGING,
    CONTRACTS,
    DEADLINE,
    DEAL_ID,
    FORBIDDEN,
    MOVES,
    NONCE,
    OPERATORS,
    PERMITS,
    ROWS,
    SHOP,
    SIGNED,
    SPENDING,
    STRANGER,
    USER,
    Chain,
    Person,
    a_permit,
    an_ask,
    multicall,
    permit,
    permit_for,
    permit_ltz,
    relayed,
    split,
    transfer_from,
    transfer_with_authorization,
)

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
CLAIMS = {"PerkNFT.claimFor", "PerkNFT.claimWithSig"}
OTHER_DEAL = Deal(STRANGER.address, AMOUNT, SHOP, DEADLINE, DealStatus.LOCKED)


def contract_of(name: str) -> str:
    return name.partition(".")[0]


def chain_for(name: str) -> Chain:
    """Returns chain state in which the user is the party that the row requires."""
    if name == "BusinessEscrow.refundWithSig":
        return Chain(deal=Deal(SHOP, AMOUNT, USER.address, DEADLINE, DealStatus.LOCKED))
    return Chain()


def refusal(ask: RelayRequest, chain: Chain | None = None) -> ValidationFailed:
    with pytest.raises(ValidationFailed) as caught:
        relayed(ask, chain)
    return caught.value


# --- the rows of the table -----------------------------------------------------------------------


def test_every_row_has_an_example_here() -> None:
    assert set(ROWS) == {row.name for row in ALLOWED_CALLS}


@pytest.mark.parametrize("name", ROWS)
def test_an_allowed_call_is_relayed_unchanged_for_its_principal(name: str) -> None:
    data = ROWS[name](USER)

    plan = relayed(an_ask(contract_of(name), data, gas_limit=1_000_000), chain_for(name))

    assert (plan.to, plan.data, plan.user) == (AT[contract_of(name)], data, USER.address)
    assert plan.function == name
    assert plan.wallet == (OPERATORS[1] if name == "LTZ.transferFrom" else None)
    assert plan.claim == (RequestedClaim(7, 2) if name in CLAIMS else None)
    assert plan.serialized_per_user == (name in CLAIMS or "buy" in name)


@pytest.mark.parametrize("name", ROWS)
def test_an_allowed_call_is_refused_for_anyone_but_its_principal(name: str) -> None:
    ask = an_ask(contract_of(name), ROWS[name](USER), STRANGER.address)

    refusal(ask, chain_for(name))


@pytest.mark.parametrize("name", SIGNED)
def test_a_signature_of_another_user_is_refused(name: str) -> None:
    error = refusal(an_ask(contract_of(name), SIGNED[name](USER, STRANGER)), chain_for(name))

    assert "signature" in error.message
    assert error.details["function"] == name.split(".")[1]


@pytest.mark.parametrize(
    ("rewrite", "fault"),
    [
        (lambda v, r, s: (v - 27, r, s), "v is 27 or 28"),
        (lambda v, r, s: (55 - v, r, ORDER - s), "s is above half the curve's order"),
    ],
)
@pytest.mark.parametrize("name", SIGNED | PERMITS)
def test_a_users_signature_in_another_form_is_refused_with_its_fault(
    name: str, rewrite: Callable[[int, int, int], tuple[int, int, int]], fault: str
) -> None:
    class Wallet(Person):
        def sign(self, contract: str, message: TypedMessage) -> bytes:
            v, r, s = split(super().sign(contract, message))
            v, *parts = rewrite(v, int.from_bytes(r, "big"), int.from_bytes(s, "big"))
            return b"".join(part.to_bytes(32, "big") for part in parts) + bytes((v,))

    data = ROWS[name](Wallet(0x1111))

    assert fault in refusal(an_ask(contract_of(name), data), chain_for(name)).message


@pytest.mark.parametrize("name", MOVES | PERMITS)
def test_a_multicall_may_hold_one_call(name: str) -> None:
    data = multicall(ROWS[name](USER))

    plan = relayed(an_ask(contract_of(name), data), chain_for(name))

    assert (plan.data, plan.function) == (data, name)
    assert plan.claim == (RequestedClaim(7, 2) if name in CLAIMS else None)


@pytest.mark.parametrize("name", MOVES)
def test_a_multicall_may_hold_a_permit_followed_by_a_call(name: str) -> None:
    contract = contract_of(name)
    data = multicall(permit_for(contract), MOVES[name](USER))

    plan = relayed(an_ask(contract, data), chain_for(name))

    assert (plan.data, plan.function) == (data, name)


@pytest.mark.parametrize("name", [name for name in MOVES if contract_of(name) != "LTZ"])
@pytest.mark.parametrize("wrap", [bytes, multicall])
def test_a_permit_beside_a_call_is_sent_before_the_call(
    name: str, wrap: Callable[[bytes], bytes]
) -> None:
    contract, call = contract_of(name), MOVES[name](USER)
    given = a_permit(AT[contract])

    plan = relayed(an_ask(contract, wrap(call), permit=given), chain_for(name))

    assert plan.data == multicall(permit_ltz(given), call)
    assert (plan.function, plan.wallet) == (name, None)


@pytest.mark.parametrize("wallet", OPERATORS)
@pytest.mark.parametrize("wrap", [bytes, multicall])
def test_a_permit_beside_transfer_from_names_the_wallet_that_sends(
    wallet: Address, wrap: Callable[[bytes], bytes]
) -> None:
    given = a_permit(wallet)

    plan = relayed(an_ask("LTZ", wrap(transfer_from()), permit=given))

    assert plan.data == multicall(permit(given), transfer_from())
    assert (plan.function, plan.wallet) == ("LTZ.transferFrom", wallet)


def test_any_number_of_claims_may_be_expected() -> None:
    call = contract_abi.encode_call(
        "PerkNFT", "claimFor", USER.address, 2**256 - 1, 0, 2**256 - 1, bytes(32)
    )

    plan = relayed(an_ask("PerkNFT", call))

    assert plan.claim == RequestedClaim(2**256 - 1, 2**256 - 1)


# --- what is not in the table --------------------------------------------------------------------


def test_another_contract_is_refused_with_its_checksummed_address() -> None:
    foreign = Address(b"\xab" * 20)

    with pytest.raises(ContractNotWhitelisted) as caught:
        decode_relay(
            RelayRequest(foreign, MOVES["PerkNFT.claimFor"](USER), USER.address), CONTRACTS
        )

    assert caught.value.details == {
        "contract": checksummed(foreign),
        "allowed": [checksummed(AT[name]) for name in ("PerkNFT", "LTZ", *CHARGING[1:])],
    }


def test_a_refused_function_is_answered_with_the_allowed_ones() -> None:
    error = refusal(an_ask("LTZ", contract_abi.encode_call("LTZ", "transfer", SHOP, AMOUNT)))

    assert error.details == {
        "contract": "LTZ",
        "selector": "0xa9059cbb",
        "allowed": ["permit", "transferWithAuthorization", "transferFrom"],
    }


def hidden(contract: str, call: bytes) -> list[bytes]:
    """Returns the call alone and in every form of multicall."""
    first = permit_for(contract)
    return [
        call,
        multicall(call),
        multicall(multicall(call)),
        multicall(first, call),
        multicall(call, first),
        multicall(first, multicall(call)),
        multicall(multicall(first, call)),
        multicall(first, first, call),
    ]


@pytest.mark.parametrize(("contract", "call"), FORBIDDEN)
def test_a_call_in_the_operators_name_is_refused_in_every_form(contract: str, call: bytes) -> None:
    for data in hidden(contract, call):
        refusal(an_ask(contract, data))
        refusal(an_ask(contract, data, permit=a_permit(AT[contract])))


@pytest.mark.parametrize(("contract", "call"), FORBIDDEN)
def test_a_forbidden_call_beside_an_allowed_call_is_refused(contract: str, call: bytes) -> None:
    for name, build in MOVES.items():
        if contract_of(name) == contract:
            refusal(an_ask(contract, multicall(build(USER), call)), chain_for(name))
            refusal(an_ask(contract, multicall(call, build(USER))), chain_for(name))
            trio = multicall(permit_for(contract), build(USER), call)
            refusal(an_ask(contract, trio), chain_for(name))


A_VALUE: dict[str, Any] = {
    "address": USER.address,
    "bool": True,
    "bytes": b"",
    "bytes32": bytes(32),
    "bytes4": bytes(4),
    "bytes[]": [],
    "string": "",
}


def a_value(kind: str) -> Any:
    if kind.startswith("("):
        element = tuple(a_value(each) for each in kind.rstrip("[]").strip("()").split(","))
        return [element] if kind.endswith("[]") else element
    return 1 if kind.startswith("uint") else A_VALUE[kind]


NOT_IN_THE_TABLE = [
    pytest.param(contract, entry, id=f"{contract}.{abi_to_signature(entry)}")
    for contract in artifacts.CONTRACTS
    for entry in artifacts.artifact(contract)["abi"]
    if entry["type"] == "function" and entry["name"] not in functions_of(contract)
]


@pytest.mark.parametrize(("contract", "entry"), NOT_IN_THE_TABLE)
def test_every_function_that_the_table_does_not_name_is_refused(
    contract: str, entry: dict[str, Any]
) -> None:
    types = get_abi_input_types(entry)  # type: ignore[arg-type]
    signature = abi_to_signature(entry)  # type: ignore[arg-type]
    call = abi_words.selector(signature) + encode(types, [a_value(kind) for kind in types])

    for data in hidden(contract, call):
        refusal(an_ask(contract, data))


@pytest.mark.parametrize("name", MOVES | PERMITS)
def test_a_function_of_one_contract_is_refused_on_the_others(name: str) -> None:
    function = name.partition(".")[2]
    for other in artifacts.CONTRACTS:
        if function not in functions_of(other):
            refusal(an_ask(other, ROWS[name](USER)), chain_for(name))


# --- multicalls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", artifacts.CONTRACTS)
def test_an_empty_multicall_is_refused(contract: str) -> None:
    assert "must hold one call" in refusal(an_ask(contract, multicall())).message


def test_two_calls_in_a_multicall_are_refused() -> None:
    claim, again = MOVES["PerkNFT.claimFor"](USER), MOVES["PerkNFT.claimWithSig"](USER)

    for calls in ([claim, again], [claim, claim], [permit_for("PerkNFT"), claim, again]):
        assert "must hold one call" in refusal(an_ask("PerkNFT", multicall(*calls))).message


def test_two_permits_are_refused_at_any_position() -> None:
    claim, first = MOVES["PerkNFT.claimFor"](USER), permit_for("PerkNFT")
    beside = a_permit(AT["PerkNFT"], nonce=NONCE + 1)

    refusal(an_ask("PerkNFT", multicall(first, first)))
    refusal(an_ask("PerkNFT", multicall(first, first, claim)))
    for data in (first, multicall(first), multicall(first, claim)):
        error = refusal(an_ask("PerkNFT", data, permit=beside))
        assert "send one" in error.message


def test_a_permit_behind_its_call_is_refused() -> None:
    claim, late = MOVES["PerkNFT.claimFor"](USER), permit_for("PerkNFT")

    assert "followed by" in refusal(an_ask("PerkNFT", multicall(claim, late))).message


def test_a_multicall_in_a_multicall_is_refused() -> None:
    inner = multicall(MOVES["PerkNFT.claimFor"](USER))

    assert "another" in refusal(an_ask("PerkNFT", multicall(inner))).message


# --- permits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", CHARGING)
def test_a_permit_on_ltz_alone_may_name_the_platforms_contracts(contract: str) -> None:
    data = permit(a_permit(AT[contract]))

    assert relayed(an_ask("LTZ", data)).data == data


@pytest.mark.parametrize("spender", [STRANGER.address, *OPERATORS, CONTRACTS.ltz, USER.address])
def test_a_permit_for_another_spender_is_refused_without_its_transfer_from(
    spender: Address,
) -> None:
    allowing = a_permit(spender)

    for data in (permit(allowing), multicall(permit(allowing))):
        assert "spender" in refusal(an_ask("LTZ", data)).message
    refusal(an_ask("LTZ", multicall(permit(allowing), transfer_with_authorization(USER))))
    refusal(an_ask("PerkNFT", MOVES["PerkNFT.claimFor"](USER), permit=allowing))


@pytest.mark.parametrize("spender", [STRANGER.address, *(AT[name] for name in AT)])
def test_transfer_from_needs_a_permit_for_a_wallet_of_the_operator(spender: Address) -> None:
    allowing = a_permit(spender)

    error = refusal(an_ask("LTZ", multicall(permit(allowing), transfer_from())))
    beside = refusal(an_ask("LTZ", transfer_from(), permit=allowing))

    assert "wallet of the operator" in error.message
    assert beside.details == error.details


@pytest.mark.parametrize("moved", [AMOUNT - 1, AMOUNT + 1, 0])
def test_transfer_from_must_use_the_whole_permit(moved: int) -> None:
    allowing = a_permit(OPERATORS[0])

    error = refusal(an_ask("LTZ", multicall(permit(allowing), transfer_from(value=moved))))
    refusal(an_ask("LTZ", transfer_from(value=moved), permit=allowing))

    assert error.details == {"permitted": str(AMOUNT), "moved": str(moved)}


def test_transfer_from_without_its_permit_is_refused() -> None:
    for data in (transfer_from(), multicall(transfer_from())):
        assert "must follow its permit" in refusal(an_ask("LTZ", data)).message


def test_transfer_from_moves_the_users_own_ltz_only() -> None:
    mine, theirs = a_permit(OPERATORS[0]), a_permit(OPERATORS[0], owner=STRANGER)
    foreign = transfer_from(STRANGER.address)

    for data in (
        multicall(permit(mine), foreign),
        multicall(permit(theirs), foreign),
        multicall(permit(theirs), transfer_from()),
    ):
        refusal(an_ask("LTZ", data))
    refusal(an_ask("LTZ", foreign, permit=mine))
    refusal(an_ask("LTZ", foreign, permit=theirs))
    refusal(an_ask("LTZ", transfer_from(), permit=theirs))


def test_a_permit_signed_by_another_owner_is_refused() -> None:
    theirs = a_permit(AT["PerkNFT"], owner=STRANGER)
    claim = MOVES["PerkNFT.claimFor"](USER)

    for ask in (
        an_ask("PerkNFT", permit_ltz(theirs)),
        an_ask("PerkNFT", multicall(permit_ltz(theirs), claim)),
        an_ask("PerkNFT", claim, permit=theirs),
        an_ask("LTZ", permit(theirs)),
    ):
        assert "owner" in refusal(ask).message


def test_a_permit_that_its_owner_did_not_sign_is_refused() -> None:
    forged = a_permit(AT["PerkNFT"], signer=STRANGER)
    claim = MOVES["PerkNFT.claimFor"](USER)

    for ask in (
        an_ask("PerkNFT", permit_ltz(forged)),
        an_ask("PerkNFT", multicall(permit_ltz(forged), claim)),
        an_ask("PerkNFT", claim, permit=forged),
        an_ask("LTZ", permit(forged)),
        an_ask("LTZ", transfer_from(), permit=a_permit(OPERATORS[0], signer=STRANGER)),
    ):
        assert "not its owner's" in refusal(ask).message


def test_a_permit_beside_a_call_is_for_the_contract_called() -> None:
    refusal(an_ask("PerkNFT", MOVES["PerkNFT.claimFor"](USER), permit=a_permit(AT["PointsSale"])))


def test_on_ltz_a_permit_beside_a_call_is_only_for_transfer_from() -> None:
    call = transfer_with_authorization(USER)

    for spender in (AT["PerkNFT"], OPERATORS[0]):
        refusal(an_ask("LTZ", call, permit=a_permit(spender)))


@pytest.mark.parametrize(
    "change",
    [
        {"value": AMOUNT + 1},
        {"deadline": DEADLINE + 1},
        {"value": 2**256},
        {"deadline": -1},
        {"signature": bytes(64)},
        {"signature": b""},
        {"signature": bytes(65)},
    ],
)
def test_a_permit_that_differs_from_the_signed_one_is_refused(
    change: dict[str, Any],
) -> None:
    given = replace(a_permit(AT["PerkNFT"]), **change)

    refusal(an_ask("PerkNFT", MOVES["PerkNFT.claimFor"](USER), permit=given))


# --- used permits --------------------------------------------------------------------------------


@pytest.mark.parametrize("since", [1, 8])
def test_a_used_permit_before_a_charging_call_is_accepted(since: int) -> None:
    used, call = a_permit(AT["PerkNFT"], nonce=NONCE - since), MOVES["PerkNFT.claimFor"](USER)
    together = multicall(permit_ltz(used), call)

    assert relayed(an_ask("PerkNFT", together)).data == together
    assert relayed(an_ask("PerkNFT", call, permit=used)).data == together


@pytest.mark.parametrize("nonce", [NONCE - 9, NONCE + 1])
def test_a_permit_for_a_nonce_long_used_or_not_due_is_refused(nonce: int) -> None:
    given = a_permit(AT["PerkNFT"], nonce=nonce)

    refusal(an_ask("PerkNFT", MOVES["PerkNFT.claimFor"](USER), permit=given))


def test_the_first_permit_of_an_owner_may_be_a_used_one() -> None:
    used, call = a_permit(AT["PerkNFT"], nonce=0), MOVES["PerkNFT.claimFor"](USER)

    relayed(an_ask("PerkNFT", call, permit=used), Chain(nonce=0))
    relayed(an_ask("PerkNFT", call, permit=used), Chain(nonce=1))


def spending_asks(given: SignedPermit) -> list[RelayRequest]:
    return [
        an_ask("LTZ", multicall(permit(given), transfer_from())),
        an_ask("LTZ", transfer_from(), permit=given),
    ]


def test_after_a_used_permit_transfer_from_is_sent_alone_from_the_named_wallet() -> None:
    used = a_permit(OPERATORS[1], nonce=NONCE - 1)

    for ask in spending_asks(used):
        plan = relayed(ask, Chain(allowance=AMOUNT))
        assert (plan.data, plan.wallet) == (transfer_from(), OPERATORS[1])


@pytest.mark.parametrize("allowance", [0, AMOUNT - 1, AMOUNT + 1])
def test_a_used_permit_whose_allowance_differs_from_the_amount_is_refused(
    allowance: int,
) -> None:
    used = a_permit(OPERATORS[1], nonce=NONCE - 1)

    for ask in spending_asks(used):
        assert "used already" in refusal(ask, Chain(allowance=allowance)).message


def test_an_allowance_does_not_replace_a_signature() -> None:
    forged = a_permit(OPERATORS[1], signer=STRANGER)

    for ask in spending_asks(forged):
        refusal(ask, Chain(allowance=AMOUNT))


def test_a_fresh_permit_is_sent_despite_an_allowance() -> None:
    fresh = a_permit(OPERATORS[1])

    for ask in spending_asks(fresh):
        plan = relayed(ask, Chain(allowance=AMOUNT))
        assert plan.data == multicall(permit(fresh), transfer_from())


def test_a_used_permit_on_ltz_alone_is_refused() -> None:
    used = permit(a_permit(AT["PerkNFT"], nonce=NONCE - 1))

    for data in (used, multicall(used)):
        assert "used already" in refusal(an_ask("LTZ", data), Chain(allowance=AMOUNT)).message


def test_after_a_used_permit_an_authorized_transfer_is_sent_alone() -> None:
    call = transfer_with_authorization(USER)
    ask = an_ask("LTZ", multicall(permit(a_permit(AT["PerkNFT"], nonce=NONCE - 1)), call))

    plan = relayed(ask, Chain(allowance=AMOUNT))

    assert (plan.data, plan.wallet) == (call, None)
    refusal(ask, Chain(allowance=0))


# --- deals ---------------------------------------------------------------------------------------

OF_DEALS = [
    "BusinessEscrow.reclaim",
    "BusinessEscrow.releaseWithSig",
    "BusinessEscrow.refundWithSig",
]


@pytest.mark.parametrize("name", OF_DEALS)
@pytest.mark.parametrize("behind_a_permit", [False, True])
def test_the_deal_must_be_the_users_own(name: str, behind_a_permit: bool) -> None:
    call = MOVES[name](USER)
    data = multicall(permit_for("BusinessEscrow"), call) if behind_a_permit else call

    error = refusal(an_ask("BusinessEscrow", data), Chain(deal=OTHER_DEAL))

    assert "the deal's" in error.message


def test_a_business_cannot_release_and_a_user_cannot_refund() -> None:
    as_business = Deal(STRANGER.address, AMOUNT, USER.address, DEADLINE, DealStatus.LOCKED)
    as_user = Deal(USER.address, AMOUNT, STRANGER.address, DEADLINE, DealStatus.LOCKED)

    for name, deal in [
        (OF_DEALS[0], as_business),
        (OF_DEALS[1], as_business),
        (OF_DEALS[2], as_user),
    ]:
        refusal(an_ask("BusinessEscrow", MOVES[name](USER)), Chain(deal=deal))


@pytest.mark.parametrize("name", OF_DEALS)
def test_a_missing_deal_is_reported_as_missing(name: str) -> None:
    nobody = Address(bytes(20))
    none = Chain(deal=Deal(nobody, 0, nobody, 0, DealStatus.NONE))

    error = refusal(an_ask("BusinessEscrow", MOVES[name](USER)), none)

    assert error.message == "There is no such deal"
    assert error.details == {"dealId": "0x" + DEAL_ID.hex()}


def test_the_zero_address_is_no_party_of_a_missing_deal() -> None:
    nobody = Address(bytes(20))
    none = Chain(deal=Deal(nobody, 0, nobody, 0, DealStatus.NONE))

    refusal(an_ask("BusinessEscrow", MOVES[OF_DEALS[0]](USER), nobody), none)


@pytest.mark.parametrize("answer", [b"", bytes(31), b"\xff" * 160, bytes(33)])
def test_a_malformed_answer_raises_node_unavailable(answer: bytes) -> None:
    for name in ("BusinessEscrow.reclaim", "LTZ.permit"):
        relay = decode_relay(an_ask(contract_of(name), ROWS[name](USER)), CONTRACTS)
        with pytest.raises(NodeUnavailable):
            relay.plan([answer], OPERATORS)


def test_only_permits_and_deals_read_the_chain() -> None:
    silent = [name for name in MOVES if name not in OF_DEALS]

    for name in silent:
        assert (
            decode_relay(an_ask(contract_of(name), ROWS[name](USER)), CONTRACTS).required_views
            == ()
        )


# --- encoding ------------------------------------------------------------------------------------


def with_word(data: bytes, place: int, word: bytes | int) -> bytes:
    """Returns the data with the argument word at `place` (in words) replaced."""
    raw = word if isinstance(word, bytes) else word.to_bytes(32, "big")
    return data[: 4 + 32 * place] + raw + data[36 + 32 * place :]


def misencoded(contract: str, data: bytes) -> str:
    error = refusal(an_ask(contract, data), Chain())
    assert "not encoded as its ABI says" in error.message
    return error.message


ADDRESSES = [
    (f"{row.contract}.{row.function}", place)
    for row in ALLOWED_CALLS
    if row.name not in SPENDING
    for place, parameter in enumerate(
        next(
            each["inputs"]
            for each in artifacts.artifact(row.contract)["abi"]
            if each.get("name") == row.function
        )
    )
    if parameter["type"] == "address"
]


@pytest.mark.parametrize(("name", "place"), ADDRESSES)
@pytest.mark.parametrize("dirty", [0, 11])
def test_dirty_bytes_above_an_address_are_refused(name: str, place: int, dirty: int) -> None:
    data = bytearray(ROWS[name](USER))
    data[4 + 32 * place + dirty] = 1

    assert "no address" in misencoded(contract_of(name), bytes(data))
    assert "no address" in misencoded(contract_of(name), multicall(bytes(data)))


def test_dirty_bytes_above_small_numbers_are_refused() -> None:
    lock, allow = MOVES["BusinessEscrow.lockFor"](USER), PERMITS["LTZ.permit"](USER)

    misencoded("BusinessEscrow", with_word(lock, 3, 1 << 40))
    misencoded("LTZ", with_word(allow, 4, 1 << 8 | 27))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("tail", [b"\0", bytes(31), bytes(32), b"\x01"])
def test_trailing_bytes_are_refused(name: str, tail: bytes) -> None:
    contract, data = contract_of(name), ROWS[name](USER)

    misencoded(contract, data + tail)
    if name not in SPENDING:
        misencoded(contract, multicall(data + tail))
        misencoded(contract, multicall(data) + tail)


@pytest.mark.parametrize("name", ROWS)
def test_truncated_data_is_refused_at_any_length(name: str) -> None:
    contract, data = contract_of(name), ROWS[name](USER)

    for end in {0, 1, 3, 4, 5, 35, 36, *range(4, len(data), 32), len(data) - 1} - {len(data)}:
        refusal(an_ask(contract, data[:end]), chain_for(name))
        refusal(an_ask(contract, multicall(data[:end])), chain_for(name))


WITH_SIG = {
    "PerkNFT.claimWithSig": 6,
    "PointsSale.buyWithSig": 6,
    "BusinessEscrow.releaseWithSig": 2,
    "BusinessEscrow.refundWithSig": 2,
}
"""Where the offset of `sig` stands."""


@pytest.mark.parametrize("name", WITH_SIG)
@pytest.mark.parametrize("offset", [0, 32, 2**255, 2**256 - 32])
def test_an_offset_of_a_signature_that_points_elsewhere_is_refused(name: str, offset: int) -> None:
    data = MOVES[name](USER)

    assert "offset" in misencoded(contract_of(name), with_word(data, WITH_SIG[name], offset))


@pytest.mark.parametrize("name", WITH_SIG)
def test_a_gap_before_a_signature_is_refused(name: str) -> None:
    data, place = MOVES[name](USER), WITH_SIG[name]
    moved = with_word(data, place, 32 * (place + 2))
    end = 36 + 32 * place

    misencoded(contract_of(name), moved[:end] + bytes(32) + moved[end:])


@pytest.mark.parametrize("name", WITH_SIG)
def test_padding_of_a_signature_must_be_zero_and_whole(name: str) -> None:
    data = MOVES[name](USER)

    assert "padding" in misencoded(contract_of(name), data[:-1] + b"\x01")
    assert "short" in misencoded(contract_of(name), data[:-31])
    for length in (128, 2**64, 2**256 - 1):
        longer = with_word(data, WITH_SIG[name] + 1, length)
        assert "short" in misencoded(contract_of(name), longer)


TWO = (permit_for("PerkNFT"), MOVES["PerkNFT.claimFor"](USER))
TAILS = [abi_words.encode_bytes(each) for each in TWO]


def a_multicall(list_at: int, count: int, *rest: bytes | int) -> bytes:
    parts = [each if isinstance(each, bytes) else each.to_bytes(32, "big") for each in rest]
    head = list_at.to_bytes(32, "big") + count.to_bytes(32, "big")
    return abi_words.selector("multicall(bytes[])") + head + b"".join(parts)


SECOND = 64 + len(TAILS[0])


def test_the_unchanged_multicall_of_the_next_test_is_accepted() -> None:
    straight = a_multicall(32, 2, 64, SECOND, *TAILS)

    assert straight == multicall(*TWO)
    assert relayed(an_ask("PerkNFT", straight)).data == straight


@pytest.mark.parametrize(
    "bent",
    [
        a_multicall(0, 2, 64, SECOND, *TAILS),
        a_multicall(64, 2, 64, SECOND, *TAILS),
        a_multicall(64, 0, 2, 64, SECOND, *TAILS),
        a_multicall(2**256 - 32, 2, 64, SECOND, *TAILS),
        a_multicall(32, 2, 64, 64, *TAILS),
        a_multicall(32, 2, SECOND, SECOND, *TAILS),
        a_multicall(32, 2, 64 + len(TAILS[1]), 64, TAILS[1], TAILS[0]),
        a_multicall(32, 2, 64, 0, *TAILS),
        a_multicall(32, 2, 64, 2**256 - 64, *TAILS),
        a_multicall(32, 2, 64, SECOND + 32, TAILS[0], bytes(32), TAILS[1]),
        a_multicall(32, 2, 96, SECOND + 32, bytes(32), *TAILS),
        a_multicall(32, 1, 32, *TAILS),
        a_multicall(32, 3, 64, SECOND, *TAILS),
        a_multicall(32, 2**256 - 1, 64, SECOND, *TAILS),
        a_multicall(32, 2**64, 64, SECOND, *TAILS),
        a_multicall(32, 2, 64, SECOND, TAILS[0], TAILS[1][:-1] + b"\x01"),
        a_multicall(32, 2, 64, SECOND, TAILS[0], TAILS[1][:-1]),
        a_multicall(32, 2, 64, SECOND, TAILS[0]),
        a_multicall(32, 2, 64, SECOND, *TAILS, bytes(32)),
    ],
)
def test_a_multicall_with_a_noncanonical_encoding_is_refused(bent: bytes) -> None:
    refusal(an_ask("PerkNFT", bent))


# --- signatures ----------------------------------------------------------------------------------


def high_s(signature: bytes) -> bytes:
    s = ORDER - int.from_bytes(signature[32:64], "big")
    return signature[:32] + s.to_bytes(32, "big") + bytes((55 - signature[64],))


def low_v(signature: bytes) -> bytes:
    return signature[:64] + bytes((signature[64] - 27,))


class Rewriting(Person):
    """A signer that signs as the user and writes the signature in another form."""

    def __init__(self, rewrite: Callable[[bytes], bytes]) -> None:
        self.key, self.address, self._rewrite = USER.key, USER.address, rewrite

    def sign(self, contract: str, message: Any) -> bytes:
        return self._rewrite(super().sign(contract, message))


REWRITTEN = [high_s, low_v]


@pytest.mark.parametrize("rewrite", REWRITTEN)
@pytest.mark.parametrize("name", SIGNED | PERMITS | SPENDING)
def test_a_signature_written_as_the_contract_would_refuse_it_is_refused(
    name: str, rewrite: Callable[[bytes], bytes]
) -> None:
    refusal(an_ask(contract_of(name), ROWS[name](Rewriting(rewrite))), chain_for(name))


@pytest.mark.parametrize(
    "rewrite",
    [lambda signature: signature[:64], lambda signature: signature + b"\0", lambda _: b""],
)
@pytest.mark.parametrize("name", WITH_SIG)
def test_a_signature_of_another_length_is_refused(
    name: str, rewrite: Callable[[bytes], bytes]
) -> None:
    error = refusal(an_ask(contract_of(name), MOVES[name](Rewriting(rewrite))), chain_for(name))

    assert "signature" in error.message


@pytest.mark.parametrize("name", SIGNED)
def test_a_signature_for_another_chain_or_contract_is_refused(name: str) -> None:
    ask = an_ask(contract_of(name), SIGNED[name](USER))
    elsewhere = replace(CONTRACTS, chain_id=1)

    with pytest.raises(ValidationFailed, match="signature"):
        decode_relay(ask, elsewhere)


# --- value and gas -------------------------------------------------------------------------------


def test_a_call_carries_no_native_value() -> None:
    error = refusal(an_ask("PerkNFT", MOVES["PerkNFT.claimFor"](USER), value=1))

    assert error.details == {"value": "1"}


def test_more_gas_than_a_million_is_refused() -> None:
    error = refusal(an_ask("PerkNFT", MOVES["PerkNFT.claimFor"](USER), gas_limit=1_000_001))

    assert error.details == {"gasLimit": 1_000_001, "maxGasLimit": 1_000_000}


def test_the_principal_is_judged_before_value_and_gas() -> None:
    call = MOVES["PerkNFT.claimFor"](STRANGER)

    error = refusal(an_ask("PerkNFT", call, value=1, gas_limit=2_000_000))

    assert error.details["function"] == "claimFor"
