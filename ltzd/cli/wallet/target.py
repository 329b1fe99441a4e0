"""Finds the database, the nodes and the contracts for `ltzd wallet add`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ltzd.cli import dev_json
from ltzd.cli.targets import Target, resolve_target
from ltzd.daemon.settings.contracts import CONTRACT_NAMES
from ltzd.daemon.settings.settings import read_settings
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class WalletTarget:
    """`contracts` are addresses by the contract's name."""

    database: Target
    rpc_urls: tuple[str, ...] = field(repr=False)
    contracts: Mapping[str, Address]


def resolve_wallet_target(data_dir: Path, config: Path | None) -> WalletTarget:
    """The settings file's target if `config` is given, else the dev instance's.

    Raises Misconfigured.
    """
    database = resolve_target(data_dir, config)
    if config is None:
        chain = dev_json.read_chain(data_dir)
        return WalletTarget(database, (chain.rpc_url,), chain.contracts)
    settings = read_settings(config)
    addresses = settings.contracts.addresses()
    contracts = {CONTRACT_NAMES[key]: address for key, address in addresses.items()}
    return WalletTarget(database, settings.node.plain_urls(), contracts)
