"""`ltzd wallet add`: stores where a wallet's key is, so that running processes serve the wallet."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import open_connection
from ltzd.cli.wallet import chain_facts
from ltzd.cli.wallet.chain_facts import WalletOnChain
from ltzd.cli.wallet.lookup import followed_chain
from ltzd.cli.wallet.target import WalletTarget
from ltzd.daemon.settings.wallets import SignerSettings, WalletKind
from ltzd.daemon.signers import open_signer
from ltzd.errors import FileRejected, Misconfigured, NodeUnavailable
from ltzd.rules.brands.toml_documents import reason_of
from ltzd.store.database import Connection
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.operator import wallet_work, wallets
from ltzd.store.operator.wallets import OperatorWallet, WalletState
from ltzd.values import Address, checksummed, iso

_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.2


def add(
    target: WalletTarget,
    kind: WalletKind,
    given: Mapping[str, Path | str | None],
    *,
    as_json: bool,
) -> None:
    """`given` are the options of the signer, by the setting's name below a wallet.

    Raises Misconfigured, FileRejected, Unavailable.
    """
    signer = _signer_settings(given)
    asyncio.run(_add(target, kind, signer, as_json=as_json))


def _signer_settings(given: Mapping[str, Path | str | None]) -> SignerSettings:
    """Paths become absolute: the processes that open them run in other folders."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            section, _, field = name.rpartition(".")
            place = values.setdefault(section, {}) if section else values
            place[field] = value.absolute() if isinstance(value, Path) else value
    try:
        return SignerSettings.model_validate(values)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise FileRejected([_fault(fault["loc"], reason_of(fault)) for fault in details]) from None


def _fault(place: tuple[int | str, ...], reason: str) -> str:
    """`--kms-key-id: is missing`"""
    option = "-".join(map(str, place)).replace("_", "-")
    return f"--{option}: {reason}" if option else reason


async def _add(
    target: WalletTarget, kind: WalletKind, settings: SignerSettings, *, as_json: bool
) -> None:
    async with open_signer(settings) as signer:
        wallet = signer.address
    async with open_connection(target.database, "wallet add") as connection:
        chain = await followed_chain(connection)
        chain_id = chain.chain_id
        before = await wallets.find(connection, chain_id, wallet)
        if before is not None:
            _refuse(before, kind)
        warnings, facts = await _chain_warnings(target, chain, wallet, kind, before)
        reference = settings.reference()
        async with connection.transaction():
            await wallets.add(connection, chain_id, wallet, kind, reference)
            await wallets.set_signer(connection, chain_id, wallet, reference)
            await wallets.set_state(connection, chain_id, wallet, WalletState.ACTIVE)
            after = await wallets.find(connection, chain_id, wallet)
            assert after is not None
            _refuse(after, kind)  # Another command may have changed it meanwhile.
        process = await _process(connection, chain_id, wallet)
    if as_json:
        print_json(
            {
                "wallet": checksummed(wallet),
                "kind": kind,
                "state": "active",
                "signer": reference,
                "isNew": before is None,
                "process": process,
                "balanceWei": None if facts is None else str(facts.balance_wei),
                "roles": None if facts is None else dict(facts.roles),
                "mintLimitLtz": None if facts is None else chain_facts.shown_limit(facts),
                "warnings": warnings,
            }
        )
        return
    print_message(_done(wallet, kind, before))
    if process is None:
        print_message(
            "No process serves it yet: a process of role operator that can read the same paths "
            f"begins within seconds. `ltzd wallet show {checksummed(wallet)}` names that process; "
            "the log line `wallet.not_served` of another one says why it does not."
        )
    else:
        print_message(f"Process {process} serves it now.")
    for warning in warnings:
        print_message(warning)


def _refuse(row: OperatorWallet, kind: WalletKind) -> None:
    """Raises Misconfigured for a wallet that cannot become one of this kind."""
    name = checksummed(row.wallet)
    if row.kind != kind:
        raise Misconfigured(
            f"{name} is a {row.kind} wallet of this database already: use another key. A wallet "
            "that relays users' calls must not mint."
        )
    if row.state is WalletState.RETIRED:
        raise Misconfigured(
            f"{name} was retired at {iso(row.state_since)} and stays so: use another key."
        )


def _done(wallet: Address, kind: str, before: OperatorWallet | None) -> str:
    name = f"{kind.capitalize()} wallet {checksummed(wallet)}"
    if before is None:
        return f"{name} is added; the database knows where its key is, not the key."
    if before.state is WalletState.DRAINING:
        return f"{name} was draining, and takes new work again."
    return f"{name} is known already; the new place of its key is stored."


async def _chain_warnings(
    target: WalletTarget,
    chain: ChainIdentity,
    wallet: Address,
    kind: str,
    before: OperatorWallet | None,
) -> tuple[list[str], WalletOnChain | None]:
    try:
        facts = await chain_facts.read(target.rpc_urls, chain, target.contracts, wallet, kind)
    except NodeUnavailable as error:
        return [f"Its roles and gas money could not be checked: {error.message}"], None
    return chain_facts.warnings_of(facts, wallet, kind, is_new=before is None), facts


async def _process(connection: Connection, chain_id: int, wallet: Address) -> str | None:
    """The process that serves the wallet, or None if no process does after some seconds."""
    deadline = asyncio.get_running_loop().time() + _WAIT_SECONDS
    while True:
        work = await wallet_work.find_work(connection, chain_id, wallet)
        process = None if work is None else work.process
        if process is not None or asyncio.get_running_loop().time() > deadline:
            return process
        await asyncio.sleep(_POLL_SECONDS)
