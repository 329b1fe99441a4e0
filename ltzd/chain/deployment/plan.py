"""Plans a deployment: the steps until the four contracts exist and each key holds its roles.

Decided without I/O, from the terms, the saved deployment and the state of the chain. After some
steps are carried out, the plan of the new state holds the remaining ones, so a run that was killed
at any point continues where it stopped.

A contract's address follows from its creator's nonce. Both are saved before anything is sent, and
the creation is sent with that nonce only: however often it is sent, one contract is created. Units:
wei of LTZ, seconds, gas.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from ltzd.chain.contracts import artifacts, contract_abi
from ltzd.values import ZERO_ADDRESS, Address, Hash32, checksummed, keccak

HOT_ROLES: Final = {
    "LTZ": ("MINTER",),
    "PerkNFT": ("RELAYER", "REDEEMER"),
    "PointsSale": ("RELAYER",),
    "BusinessEscrow": ("RELAYER",),
}
"""Roles of keys that are on a server."""
COLD_ROLES: Final = {
    "LTZ": ("GUARDIAN",),
    "PerkNFT": ("GUARDIAN", "REGISTRAR"),
    "PointsSale": ("GUARDIAN", "REGISTRAR"),
    "BusinessEscrow": ("GUARDIAN", "REGISTRAR", "SETTLER", "ARBITER"),
}
_LIMIT_UNIT = 10**12
"""LTZ stores mint limits in multiples of this many wei."""
_MAX_LIMIT_UNITS = 2**88 - 1
_GAS_PER_BYTE = 260
"""Gas per byte of a creation: 200 to store it, 16 to send it, the rest to run the constructor."""
_CALL_GAS, _GAS_PER_CALL = 60_000, 80_000


class MintLimit(msgspec.Struct, frozen=True):
    """At most `capacity` wei at once, refilled over `window_seconds`."""

    capacity: int
    window_seconds: int

    def rounded_as_stored(self) -> "MintLimit":
        return replace(self, capacity=self.capacity // _LIMIT_UNIT * _LIMIT_UNIT)

    def faults(self) -> Iterator[str]:
        """Why LTZ would refuse the limit, or no LTZ could be minted with it."""
        if not 0 < self.rounded_as_stored().capacity <= _MAX_LIMIT_UNITS * _LIMIT_UNIT:
            yield "The mint limit must lie between 0.000001 LTZ and 3 * 10^20 LTZ."
        if not 0 < self.window_seconds < 2**40:
            yield "The mint limit's window must be at least a second, and less than 2^40 seconds."


class DeploymentTerms(msgspec.Struct, frozen=True):
    """The accounts that shall hold each role. `heir` shall become admin after the deployer."""

    deployer: Address
    admin_delay_seconds: int
    heir: Address | None = None
    minter: Address | None = None
    mint_limit: MintLimit | None = None
    relayers: tuple[Address, ...] = ()
    guardians: tuple[Address, ...] = ()
    registrars: tuple[Address, ...] = ()
    settlers: tuple[Address, ...] = ()
    arbiters: tuple[Address, ...] = ()

    def holders(self, role: str) -> tuple[Address, ...]:
        if role == "MINTER":
            return () if self.minter is None else (self.minter,)
        return {
            "RELAYER": self.relayers,
            "REDEEMER": self.relayers,
            "GUARDIAN": self.guardians,
            "REGISTRAR": self.registrars,
            "SETTLER": self.settlers,
            "ARBITER": self.arbiters,
        }[role]

    def hot(self) -> tuple[Address, ...]:
        return (*self.holders("MINTER"), *self.relayers)


class Grant(msgspec.Struct, frozen=True, order=True):
    contract: str
    role: str
    account: Address

    def __str__(self) -> str:
        return f"{self.contract}: {self.role} of {checksummed(self.account)}"


class DeployedContract(msgspec.Struct, frozen=True):
    """A contract's address, also before the creation. `nonce` is None if it is unknown."""

    address: Address
    nonce: int | None = None


class Deployment(msgspec.Struct, frozen=True):
    """The saved state of a deployment. LTZ's first log is in `first_block` or later."""

    chain_id: int
    genesis: Hash32
    deployer: Address
    first_block: int
    contracts: Mapping[str, DeployedContract]

    def address(self, contract: str) -> Address:
        return self.contracts[contract].address


class RoleState(msgspec.Struct, frozen=True):
    """One contract's roles after a block. `granted` holds the queried grants that exist."""

    admin: Address
    pending_admin: Address
    admin_delay_seconds: int
    granted: frozenset[Grant]
    mint_limit: MintLimit | None = None


class Step(msgspec.Struct, frozen=True):
    """One transaction. `to` is None for a creation, which has a fixed nonce."""

    contract: str
    to: Address | None
    data: bytes
    gas_limit: int
    description: str
    nonce: int | None = None


def faults_of(terms: DeploymentTerms) -> list[str]:
    """Sentences about terms that least privilege or the contracts forbid."""
    return list(_faults_of(terms))


def _faults_of(terms: DeploymentTerms) -> Iterator[str]:
    cold = {terms.deployer: "deployer", terms.heir: "admin"}
    for role in ("GUARDIAN", "REGISTRAR", "SETTLER", "ARBITER"):
        cold |= dict.fromkeys(terms.holders(role), role.lower())
    for account in terms.hot():
        if account in cold:
            kind = "minter" if account == terms.minter else "relayer"
            yield (
                f"{checksummed(account)} cannot be {kind} and {cold[account]}: "
                "a key on a server must have no other role."
            )
    if terms.minter in terms.relayers:
        yield "The mint wallet and the relay wallet must be two: one stolen key must not be both."
    if ZERO_ADDRESS in {*terms.hot(), *cold}:
        yield "The zero address can hold no role."
    if (terms.minter is None) != (terms.mint_limit is None):
        yield "A minter needs a limit, and a limit its minter: give both."
    if terms.mint_limit is not None:
        yield from terms.mint_limit.faults()


def hot_roles(*, is_mint: bool) -> list[tuple[str, str]]:
    """Contract and role of each role that a mint wallet needs, or else that a relay wallet needs.

    No wallet has roles of both kinds.
    """
    return [
        (contract, role)
        for contract, roles in HOT_ROLES.items()
        for role in roles
        if (role == "MINTER") == is_mint
    ]


def wanted_grants(terms: DeploymentTerms, contract: str) -> list[Grant]:
    return [
        Grant(contract, role, account)
        for role in (*HOT_ROLES[contract], *COLD_ROLES[contract])
        for account in terms.holders(role)
    ]


def forbidden_grants(terms: DeploymentTerms, contract: str) -> list[Grant]:
    """Grants that no hot key may hold."""
    cold = ("DEFAULT_ADMIN", *COLD_ROLES[contract])
    forbidden = [Grant(contract, role, account) for account in terms.hot() for role in cold]
    if terms.minter is not None:
        relaying = [role for role in HOT_ROLES[contract] if role != "MINTER"]
        forbidden += [Grant(contract, role, terms.minter) for role in relaying]
    if contract == "LTZ":
        forbidden += [Grant(contract, "MINTER", account) for account in terms.relayers]
    return forbidden


def assign_addresses(
    before: Deployment, deployer: Address, nonce: int, first_block: int, existing: frozenset[str]
) -> Deployment:
    """Addresses for all contracts that do not exist, from the deployer's next nonces.

    Saved addresses stay while they can still come true. Without LTZ no other contract counts as
    existing: the others hold LTZ's address and cannot change it. A chain that was started again has
    lower blocks than before, so `first_block` may fall.
    """
    if "LTZ" in existing:
        missing = [name for name in artifacts.CONTRACTS if name not in existing]
    else:
        missing = list(artifacts.CONTRACTS)
        before = replace(before, first_block=min(before.first_block, first_block))
    nonces = range(nonce, nonce + len(missing))
    known = [before.contracts[name].nonce if name in before.contracts else None for name in missing]
    if not missing or (known == list(nonces) and before.deployer == deployer):
        return before
    fresh = {
        name: DeployedContract(created_address(deployer, at), at)
        for name, at in zip(missing, nonces, strict=True)
    }
    return replace(before, deployer=deployer, contracts={**before.contracts, **fresh})


def plan(
    terms: DeploymentTerms, deployment: Deployment, states: Mapping[str, RoleState]
) -> list[Step]:
    """All remaining steps, creations first. `states` holds the contracts that exist."""
    missing = [name for name in artifacts.CONTRACTS if name not in states]
    creations = [_creation(terms, deployment, name) for name in missing]
    calls = [_calls(terms, deployment, name, states.get(name)) for name in artifacts.CONTRACTS]
    return creations + [step for step in calls if step is not None]


def is_ready(step: Step, states: Mapping[str, RoleState]) -> bool:
    """Whether the step can be simulated now: the contracts that it needs exist."""
    if step.to is None:
        return step.contract == "LTZ" or "LTZ" in states
    return step.contract in states


def _creation(terms: DeploymentTerms, deployment: Deployment, contract: str) -> Step:
    paid_in = () if contract == "LTZ" else (deployment.address("LTZ"),)
    data = contract_abi.creation_code(contract, *paid_in, terms.deployer, terms.admin_delay_seconds)
    contracts = deployment.contracts[contract]
    return Step(
        contract,
        None,
        data,
        _GAS_PER_BYTE * len(data),
        f"create {contract} at {checksummed(contracts.address)}",
        contracts.nonce,
    )


def _calls(
    terms: DeploymentTerms, deployment: Deployment, contract: str, states: RoleState | None
) -> Step | None:
    """All roles and limits that a contract lacks, in one transaction of its admin."""
    left = list(_left(terms, contract, states))
    if not left:
        return None
    calls = [call for call, _ in left]
    data = calls[0] if len(calls) == 1 else contract_abi.encode_call(contract, "multicall", calls)
    description = f"{contract}: {'; '.join(text for _, text in left)}"
    gas_limit = _CALL_GAS + _GAS_PER_CALL * len(calls)
    return Step(contract, deployment.address(contract), data, gas_limit, description)


def _left(
    terms: DeploymentTerms, contract: str, states: RoleState | None
) -> Iterator[tuple[bytes, str]]:
    granted = states.granted if states else frozenset()
    limit = terms.mint_limit
    if contract == "LTZ" and limit is not None and terms.minter is not None:
        known = states.mint_limit if states else None
        if known != limit.rounded_as_stored():
            # Before the role: a minter with a wrong limit must not mint meanwhile.
            amount, seconds = limit.capacity, limit.window_seconds
            yield (
                contract_abi.encode_call("LTZ", "setMintLimit", terms.minter, amount, seconds),
                f"limit {checksummed(terms.minter)} to {amount} wei in {seconds} s",
            )
    for grant in wanted_grants(terms, contract):
        if grant not in granted:
            yield (
                contract_abi.encode_call(
                    contract, "grantRole", contract_abi.role_id(grant.role), grant.account
                ),
                f"grant {grant.role} to {checksummed(grant.account)}",
            )
    known_heirs = {states.admin, states.pending_admin} if states else {terms.deployer}
    if terms.heir is not None and terms.heir not in known_heirs:
        yield (
            contract_abi.encode_call(contract, "beginDefaultAdminTransfer", terms.heir),
            f"offer the admin role to {checksummed(terms.heir)}",
        )


def faults_on_chain(terms: DeploymentTerms, states: Mapping[str, RoleState]) -> list[str]:
    """Contradictions between chain and terms that no step corrects, a sentence each."""
    return [
        fault for name, state in states.items() for fault in _faults_on_chain(terms, name, state)
    ]


def _faults_on_chain(terms: DeploymentTerms, contract: str, states: RoleState) -> Iterator[str]:
    for grant in forbidden_grants(terms, contract):
        if grant in states.granted:
            yield f"{grant} must be revoked: a key on a server must have no other role."
    if states.admin not in {terms.deployer, terms.heir}:
        yield f"{contract}: its admin is {checksummed(states.admin)}."
    if states.admin_delay_seconds != terms.admin_delay_seconds:
        yield (
            f"{contract}: its admin delay is {states.admin_delay_seconds} s, "
            f"not {terms.admin_delay_seconds} s; the admin can change it."
        )


def created_address(creator: Address, nonce: int) -> Address:
    """The address of a contract that `creator` creates with `nonce` (Yellow Paper 7)."""
    digits = nonce.to_bytes((nonce.bit_length() + 7) // 8, "big")
    number = digits if 0 < nonce < 0x80 else bytes((0x80 + len(digits),)) + digits
    payload = b"\x94" + creator + number
    return Address(keccak(bytes((0xC0 + len(payload),)) + payload)[-20:])
