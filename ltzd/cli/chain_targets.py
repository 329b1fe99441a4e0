"""Where a command's node and contracts are: a dev instance's, or those of the settings."""

from dataclasses import dataclass, field
from pathlib import Path

from ltzd.chain.contracts.offers import OfferContracts
from ltzd.cli import dev_json
from ltzd.daemon.settings.settings import read_settings
from ltzd.rules.operator.fees import FeePolicy

DEV_FEES = FeePolicy(cap=10**18)
"""On a full dev chain fees may climb over any sensible cap, and cost nobody anything."""


@dataclass(frozen=True, slots=True)
class ChainTarget:
    rpc_url: str = field(repr=False)
    contracts: OfferContracts
    fees: FeePolicy


def resolve_chain_target(data_dir: Path, config: Path | None) -> ChainTarget:
    """Settings win. Raises Misconfigured."""
    if config is None:
        return _of_dev(data_dir)
    settings = read_settings(config)
    return ChainTarget(
        settings.node.rpc_url.get_secret_value(),
        OfferContracts(
            settings.contracts.perk_nft,
            settings.contracts.points_sale,
            settings.contracts.business_escrow,
            settings.contracts.first_block,
        ),
        FeePolicy(cap=settings.operator.max_fee_wei),
    )


def _of_dev(data_dir: Path) -> ChainTarget:
    chain = dev_json.read_chain(data_dir)
    contracts = OfferContracts(
        chain.contracts["PerkNFT"], chain.contracts["PointsSale"], chain.contracts["BusinessEscrow"]
    )
    return ChainTarget(chain.rpc_url, contracts, DEV_FEES)
