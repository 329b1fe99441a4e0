"""The plan of a deployment, decided without a chain."""

from typing import Any

import pytest
import rlp.codec
from eth_hash.auto import keccak
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.chain.contracts import artifacts, contract_abi
from ltzd.chain.deployment.plan import (
    DeployedContract,
    Deployment,
    MintLimit,
    RoleState,
    assign_addresses,
    created_address,
    faults_of,
    faults_on_chain,
    forbidden_grants,
    is_ready,
    plan,
    wanted_grants,
)
from ltzd.values import LTZ, ZERO_ADDRESS, Address, Hash32
from tests.support.chain.deployments import GUARDIAN, LIMIT, MINTER, REGISTRAR, RELAYER, terms_of

DEPLOYER, OTHER = Address(b"\xde" * 20), Address(b"\x0e" * 20)
TERMS = terms_of(DEPLOYER)
NOTHING = Deployment(31337, Hash32(bytes(32)), DEPLOYER, 100, {})
ALL = frozenset(artifacts.CONTRACTS)
PLACED = assign_addresses(NOTHING, DEPLOYER, 7, 100, frozenset())


def standing(contract: str, **changes: Any) -> RoleState:
    """Returns the state of a contract that meets the terms."""
    good = RoleState(
        DEPLOYER,
        ZERO_ADDRESS,
        60,
        frozenset(wanted_grants(TERMS, contract)),
        LIMIT if contract == "LTZ" else None,
    )
    return replace(good, **changes)


def test_addresses_are_those_of_the_next_four_nonces() -> None:
    assert [PLACED.contracts[name].nonce for name in artifacts.CONTRACTS] == [7, 8, 9, 10]
    assert PLACED.address("LTZ") == created_address(DEPLOYER, 7)


def test_recorded_addresses_are_kept_while_their_nonces_are_unused() -> None:
    assert assign_addresses(PLACED, DEPLOYER, 7, 900, frozenset()) == PLACED
    assert assign_addresses(PLACED, DEPLOYER, 8, 900, frozenset({"LTZ"})) == PLACED
    assert assign_addresses(PLACED, DEPLOYER, 10, 900, ALL - {"BusinessEscrow"}) == PLACED
    assert assign_addresses(PLACED, DEPLOYER, 99, 900, ALL) == PLACED
    assert assign_addresses(PLACED, OTHER, 0, 900, ALL) == PLACED


def test_a_nonce_used_elsewhere_gives_its_contract_another_address() -> None:
    assigned = assign_addresses(PLACED, DEPLOYER, 9, 900, frozenset({"LTZ"}))

    assert [assigned.contracts[name].nonce for name in artifacts.CONTRACTS] == [7, 9, 10, 11]
    assert assigned.address("LTZ") == PLACED.address("LTZ")


def test_another_deployer_continues_with_its_own_addresses() -> None:
    assigned = assign_addresses(PLACED, OTHER, 3, 900, frozenset({"LTZ", "PerkNFT"}))

    assert assigned.deployer == OTHER
    assert assigned.address("PerkNFT") == PLACED.address("PerkNFT")
    assert assigned.contracts["PointsSale"] == DeployedContract(created_address(OTHER, 3), 3)


def test_without_ltz_all_are_deployed_anew() -> None:
    assigned = assign_addresses(PLACED, DEPLOYER, 20, 900, ALL - {"LTZ"})

    assert [assigned.contracts[name].nonce for name in artifacts.CONTRACTS] == [20, 21, 22, 23]


def test_a_new_chain_is_indexed_from_its_own_blocks_on() -> None:
    assert assign_addresses(PLACED, DEPLOYER, 0, 1, frozenset()).first_block == 1
    assert assign_addresses(PLACED, DEPLOYER, 8, 1, frozenset({"LTZ"})).first_block == 100


def test_ltz_that_another_version_deployed_is_kept() -> None:
    before = replace(NOTHING, deployer=ZERO_ADDRESS, contracts={"LTZ": DeployedContract(OTHER)})

    assigned = assign_addresses(before, DEPLOYER, 4, 900, frozenset({"LTZ"}))

    assert assigned.contracts["LTZ"] == DeployedContract(OTHER)
    assert [assigned.contracts[name].nonce for name in artifacts.CONTRACTS[1:]] == [4, 5, 6]


def test_creations_come_first_with_their_nonces_then_one_call_for_each() -> None:
    steps = plan(TERMS, PLACED, {})

    assert [step.contract for step in steps] == [*artifacts.CONTRACTS, *artifacts.CONTRACTS]
    assert [step.nonce for step in steps] == [7, 8, 9, 10, None, None, None, None]
    assert [step.to for step in steps[4:]] == [PLACED.address(name) for name in artifacts.CONTRACTS]
    assert [step.contract for step in steps if is_ready(step, {})] == ["LTZ"]
    ready = [step for step in steps if is_ready(step, {"LTZ": standing("LTZ")})]
    assert ready == steps[:5]


def test_the_limit_is_set_before_the_role_is_granted() -> None:
    step = plan(TERMS, PLACED, {})[4]

    limit = step.data.index(artifacts.selector("LTZ", "setMintLimit"))
    assert limit < step.data.index(artifacts.selector("LTZ", "grantRole"))


def test_a_complete_deployment_has_no_steps_left() -> None:
    assert plan(TERMS, PLACED, {name: standing(name) for name in artifacts.CONTRACTS}) == []


def test_only_the_missing_steps_are_left() -> None:
    there = {name: standing(name) for name in artifacts.CONTRACTS}
    lacking = there["PerkNFT"].granted - {wanted_grants(TERMS, "PerkNFT")[0]}
    there["PerkNFT"] = standing("PerkNFT", granted=lacking)

    (step,) = plan(TERMS, PLACED, there)

    assert step.to == PLACED.address("PerkNFT")
    assert step.data == contract_abi.encode_call(
        "PerkNFT", "grantRole", contract_abi.role_id("RELAYER"), RELAYER
    )


@pytest.mark.parametrize(
    ("wanted", "known", "is_left"),
    [
        (MintLimit(1000 * LTZ, 3600), MintLimit(1000 * LTZ, 3600), False),
        (MintLimit(1000 * LTZ + 1, 3600), MintLimit(1000 * LTZ, 3600), False),
        (MintLimit(1000 * LTZ, 3600), MintLimit(1001 * LTZ, 3600), True),
        (MintLimit(1000 * LTZ, 3600), MintLimit(1000 * LTZ, 3601), True),
    ],
)
def test_a_limit_is_compared_as_ltz_keeps_it(
    wanted: MintLimit, known: MintLimit, is_left: bool
) -> None:
    there = {name: standing(name) for name in artifacts.CONTRACTS}
    there["LTZ"] = standing("LTZ", mint_limit=known)

    assert bool(plan(terms_of(DEPLOYER, mint_limit=wanted), PLACED, there)) is is_left


@pytest.mark.parametrize(
    ("state", "offers"),
    [({}, 4), ({"pending_admin": OTHER}, 0), ({"admin": OTHER}, 0)],
)
def test_the_admin_role_is_offered_once(state: dict[str, Any], offers: int) -> None:
    there = {name: standing(name, **state) for name in artifacts.CONTRACTS}

    steps = plan(terms_of(DEPLOYER, heir=OTHER), PLACED, there)

    expected = contract_abi.encode_call("LTZ", "beginDefaultAdminTransfer", OTHER)
    assert [step.data for step in steps] == [expected] * offers


@pytest.mark.parametrize(
    ("changes", "fault_text"),
    [
        ({"minter": DEPLOYER}, "cannot be minter and deployer"),
        ({"relayers": (DEPLOYER,)}, "cannot be relayer and deployer"),
        ({"minter": GUARDIAN}, "cannot be minter and guardian"),
        ({"relayers": (RELAYER, REGISTRAR)}, "cannot be relayer and registrar"),
        ({"relayers": (OTHER,), "settlers": (OTHER,)}, "cannot be relayer and settler"),
        ({"relayers": (OTHER,), "arbiters": (OTHER,)}, "cannot be relayer and arbiter"),
        ({"relayers": (OTHER,), "heir": OTHER}, "cannot be relayer and admin"),
        ({"relayers": (MINTER,)}, "must be two"),
        ({"registrars": (ZERO_ADDRESS,)}, "The zero address"),
        ({"minter": None}, "give both"),
        ({"mint_limit": None}, "give both"),
        ({"mint_limit": MintLimit(10**12 - 1, 60)}, "must lie between"),
        ({"mint_limit": MintLimit(2**88 * 10**12, 60)}, "must lie between"),
        ({"mint_limit": MintLimit(LTZ, 0)}, "at least a second"),
    ],
)
def test_terms_that_give_a_key_too_much_are_refused(
    changes: dict[str, Any], fault_text: str
) -> None:
    (fault,) = faults_of(terms_of(DEPLOYER, **changes))

    assert fault_text in fault


def test_valid_terms_have_no_fault() -> None:
    assert faults_of(TERMS) == []
    assert faults_of(terms_of(DEPLOYER, minter=None, mint_limit=None, relayers=())) == []


@pytest.mark.parametrize("contract", artifacts.CONTRACTS)
def test_no_role_that_is_wanted_is_forbidden(contract: str) -> None:
    wanted, forbidden = wanted_grants(TERMS, contract), forbidden_grants(TERMS, contract)

    assert not {*wanted} & {*forbidden}
    declared = {
        entry["name"].removesuffix("_ROLE")
        for entry in artifacts.artifact(contract)["abi"]
        if entry.get("name", "").endswith("_ROLE")
    }
    roles = {grant.role for grant in wanted} | {grant.role for grant in forbidden}
    assert declared == roles


def test_a_hot_key_that_holds_a_cold_role_is_a_fault_of_the_chain() -> None:
    for grant in forbidden_grants(TERMS, "BusinessEscrow"):
        granted = standing("BusinessEscrow").granted | {grant}

        (fault,) = faults_on_chain(
            TERMS, {"BusinessEscrow": standing("BusinessEscrow", granted=granted)}
        )

        assert str(grant) in fault


@pytest.mark.parametrize(
    ("changes", "fault_text"),
    [({"admin": OTHER}, "its admin is 0x"), ({"admin_delay_seconds": 0}, "delay is 0 s, not 60 s")],
)
def test_another_admin_or_delay_is_a_fault_of_the_chain(
    changes: dict[str, Any], fault_text: str
) -> None:
    (fault,) = faults_on_chain(TERMS, {"LTZ": standing("LTZ", **changes)})

    assert fault_text in fault


@given(st.binary(min_size=20, max_size=20), st.integers(0, 2**64 - 2))
def test_a_created_address_is_keccak_of_creator_and_nonce(creator: bytes, nonce: int) -> None:
    encoded = rlp.codec.encode([creator, nonce])  # type: ignore[no-untyped-call]

    assert created_address(Address(creator), nonce) == keccak(encoded)[-20:]
