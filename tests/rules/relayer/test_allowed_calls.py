"""The table of allowed relay calls, compared with the compiled contracts."""

import pytest
from msgspec.structs import fields

from ltzd.chain.contracts import artifacts
from ltzd.chain.relayer.signatures import MESSAGES
from ltzd.rules.relayer.allowed_calls import (
    ALLOWED_CALLS,
    AllowedCall,
    CallRole,
    DealParty,
    functions_of,
)

PRINCIPALS = {
    ("PerkNFT", "claimFor"): "user",
    ("PerkNFT", "claimWithSig"): "user",
    ("PerkNFT", "permitLTZ"): "owner",
    ("PointsSale", "buyFor"): "buyer",
    ("PointsSale", "buyWithSig"): "buyer",
    ("PointsSale", "permitLTZ"): "owner",
    ("BusinessEscrow", "lockFor"): "user",
    ("BusinessEscrow", "releaseWithSig"): "the deal's user",
    ("BusinessEscrow", "refundWithSig"): "the deal's business",
    ("BusinessEscrow", "reclaim"): "the deal's user",
    ("BusinessEscrow", "permitLTZ"): "owner",
    ("LTZ", "permit"): "owner",
    ("LTZ", "transferWithAuthorization"): "from",
    ("LTZ", "transferFrom"): "from",
}


def inputs_of(row: AllowedCall) -> list[dict[str, str]]:
    (entry,) = [
        each
        for each in artifacts.artifact(row.contract)["abi"]
        if each["type"] == "function" and each["name"] == row.function
    ]
    inputs: list[dict[str, str]] = entry["inputs"]
    return inputs


def expected_type(principal: str | DealParty) -> str:
    return principal.value if isinstance(principal, DealParty) else principal


def test_the_table_names_these_functions_and_principals_and_no_other() -> None:
    assert {
        (row.contract, row.function): expected_type(row.principal) for row in ALLOWED_CALLS
    } == PRINCIPALS
    assert len(ALLOWED_CALLS) == len(PRINCIPALS)


@pytest.mark.parametrize("row", ALLOWED_CALLS, ids=lambda row: row.name)
def test_a_principal_is_an_address_among_the_arguments_or_a_party_of_the_deal_named(
    row: AllowedCall,
) -> None:
    types = {parameter["name"]: parameter["type"] for parameter in inputs_of(row)}
    if isinstance(row.principal, DealParty):
        assert row.contract == "BusinessEscrow"
        assert types["dealId"] == "bytes32"
    else:
        assert types[row.principal] == "address"


@pytest.mark.parametrize("row", ALLOWED_CALLS, ids=lambda row: row.name)
def test_whatever_ends_with_a_signature_names_the_message_unless_it_is_a_permit(
    row: AllowedCall,
) -> None:
    names = [parameter["name"] for parameter in inputs_of(row)]
    ends_signed = names[-1] == "sig" or names[-3:] == ["v", "r", "s"]

    assert ends_signed == (row.signs is not None or row.role is CallRole.PERMIT)


@pytest.mark.parametrize(
    "row", [row for row in ALLOWED_CALLS if row.signs is not None], ids=lambda row: row.name
)
def test_a_messages_fields_are_the_arguments_before_the_signature(row: AllowedCall) -> None:
    message = MESSAGES[str(row.signs)]
    assert isinstance(message, type)
    types = [parameter["type"] for parameter in inputs_of(row)]
    before = types[:-1] if types[-1] == "bytes" else types[:-3]

    solidity = {"Address": "address", "int": "uint256", "bytes": "bytes32"}
    field_types = [field.type for field in fields(message)]
    assert [
        solidity[getattr(parameter, "__name__", str(parameter))] for parameter in field_types
    ] == before


def test_only_claims_and_purchases_are_serialized_per_user() -> None:
    assert {row.function for row in ALLOWED_CALLS if row.serialized_per_user} == {
        "claimFor",
        "claimWithSig",
        "buyFor",
        "buyWithSig",
    }


def test_a_contracts_functions_are_those_of_its_rows() -> None:
    assert functions_of("LTZ") == ["permit", "transferWithAuthorization", "transferFrom"]
