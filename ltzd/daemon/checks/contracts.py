"""Checks which contracts are at the settings' addresses, and what the wallets may do there."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from ltzd.chain.contracts import ltz
from ltzd.chain.contracts.access_control import decode_has_role, has_role_call
from ltzd.chain.contracts.runtime_code import build_of, matches_source
from ltzd.chain.deployment.plan import hot_roles
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.daemon.checks.database import DatabaseExamination
from ltzd.daemon.settings.contracts import CONTRACT_NAMES
from ltzd.errors import NodeUnavailable
from ltzd.operator.fleet.fleet import SettingsWallet
from ltzd.operator.policy import MINT, TREASURY
from ltzd.rules.checks.findings import Finding, fault, ok, warning
from ltzd.rules.conditions.lanes import grant_command
from ltzd.values import Address, checksummed, hex_of, iso


def judge_codes(
    addresses: Mapping[str, Address], codes: Mapping[str, bytes], chain_id: int
) -> list[Finding]:
    """Compare the code at each address with the compiled contracts, immutables included."""
    faults = [
        fault("contracts", sentence)
        for setting, address in addresses.items()
        if (sentence := _code_fault(setting, address, codes[setting], chain_id, addresses["ltz"]))
    ]
    return faults or [ok("contracts", "The four contracts are those of this version.")]


def _code_fault(
    setting: str, address: Address, code: bytes, chain_id: int, token: Address
) -> str | None:
    wanted = CONTRACT_NAMES[setting]
    if matches_source(wanted, code, chain_id, address, token):
        return None
    place, actual = f"contracts.{setting} is {hex_of(address)}", build_of(code)
    if actual is None:
        return (
            f"{place}, whose code is not this version's {wanted}: give the address of a {wanted} "
            "that this version of `ltzd deploy` has deployed, or run the version that deployed it."
        )
    if actual != wanted:
        return f"{place}, which holds {actual}: give the address of {wanted}."
    return (
        f"{place}, which holds the {wanted} of another deployment, for another LTZ or another "
        "chain: take all addresses from one run of `ltzd deploy`."
    )


async def wallet_findings(
    node: Node,
    contracts: Mapping[str, Address],
    wallets: Sequence[SettingsWallet],
    database: DatabaseExamination,
) -> list[Finding]:
    """The roles and the mint limits of wallets.

    A wallet that has sent before has lost its role on purpose, for example by a guardian: it must
    not keep the rest of ltzd from starting, so that is a warning. A retired wallet needs no role,
    and its key may be stolen: no finding says how to grant it one.
    """
    findings: list[Finding] = []
    for wallet in wallets:
        if wallet.address is None or wallet.kind == TREASURY:
            continue
        if (since := database.retired.get(wallet.address)) is not None:
            findings.append(warning("wallets", _retired(wallet, wallet.address, since)))
            continue
        try:
            sentence = await _wallet_fault(node, contracts, wallet, wallet.address)
        except (NodeUnavailable, RpcError, ValueError):
            reason = f"The roles of {wallet.setting} could not be read: the node does not answer."
            findings.append(warning("roles", reason))
            continue
        if sentence is not None:
            level = warning if wallet.address in database.has_worked else fault
            findings.append(level("roles", sentence))
    return findings or [ok("roles", "Every wallet of the settings has its roles.")]


def _retired(wallet: SettingsWallet, address: Address, since: datetime) -> str:
    return (
        f"{wallet.setting} names {checksummed(address)}, which was retired at {iso(since)} and "
        "stays so: remove it from the settings, and grant it no role."
    )


async def _wallet_fault(
    node: Node, contracts: Mapping[str, Address], wallet: SettingsWallet, address: Address
) -> str | None:
    """Raises NodeUnavailable, RpcError, ValueError."""
    is_mint = wallet.kind == MINT
    by_name = {CONTRACT_NAMES[setting]: contract for setting, contract in contracts.items()}
    roles = hot_roles(is_mint=is_mint)
    calls = [(by_name[contract], has_role_call(role, address)) for contract, role in roles]
    if is_mint:
        calls.append((contracts["ltz"], ltz.mint_limit_call(address)))
    answers = await node.views(calls)
    missing = [
        f"{contract}.{role}"
        for (contract, role), answer in zip(roles, answers, strict=False)
        if not decode_has_role(answer)
    ]
    who = f"{wallet.setting} is the wallet {checksummed(address)}"
    if missing:
        return (
            f"{who}, which lacks {', '.join(missing)}, so that its transactions would revert; run: "
            f"{grant_command(address, wallet.kind)} --config FILE"
        )
    if is_mint and ltz.decode_mint_limit(answers[-1])[0] == 0:
        return (
            f"{who}, whose mint limit is 0, so that it mints nothing; run: "
            f"{grant_command(address, wallet.kind)} --config FILE"
        )
    return None
