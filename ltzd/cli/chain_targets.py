"""Finds the node and the contracts for a command, in a dev instance or in the settings."""

from dataclasses import dataclass, field
from pathlib import Path

from ltzd.chain.contracts.offers import OfferContracts
from ltzd.cli import dev_json
from ltzd.daemon.settings.settings import read_settings
from ltzd.errors import Misconfigured
from ltzd.rules.operator.fees import FeePolicy

DEV_FEES = FeePolicy(cap=10**18)
"""Practically no cap: fees on a busy dev chain can rise above any sensible cap and are not real."""


@dataclass(frozen=True, slots=True)
class ChainTarget:
    """`chain_id` is None if the settings do not name the chain."""

    rpc_urls: tuple[str, ...] = field(repr=False)
    contracts: OfferContracts
    fees: FeePolicy
    chain_id: int | None = None


def resolve_chain_target(data_dir: Path, config: Path | None) -> ChainTarget:
    """The settings file's target if `config` is given, else the dev instance's.

    Raises Misconfigured.
    """
    if config is None:
        return _of_dev(data_dir)
    settings = read_settings(config)
    return ChainTarget(
        settings.node.plain_urls(),
        OfferContracts(
            settings.contracts.perk_nft,
            settings.contracts.points_sale,
            settings.contracts.business_escrow,
            settings.contracts.first_block,
        ),
        settings.operator.fees(),
        settings.node.chain_id,
    )


def node_urls(data_dir: Path, config: Path | None) -> tuple[str, ...]:
    """The nodes of the settings file if `config` is given, else the dev instance's.

    Raises Misconfigured.
    """
    if config is None:
        return (dev_json.read_chain(data_dir).rpc_url,)
    return read_settings(config).node.plain_urls()


def known_node_urls(data_dir: Path, config: Path | None) -> tuple[str, ...]:
    """As `node_urls`, for a command that also works without nodes: empty where that raises."""
    try:
        return node_urls(data_dir, config)
    except Misconfigured:
        return ()


def _of_dev(data_dir: Path) -> ChainTarget:
    chain = dev_json.read_chain(data_dir)
    contracts = OfferContracts(
        chain.contracts["PerkNFT"], chain.contracts["PointsSale"], chain.contracts["BusinessEscrow"]
    )
    return ChainTarget((chain.rpc_url,), contracts, DEV_FEES, chain.chain_id)
