"""What the indexer is told by the settings."""

from dataclasses import dataclass

from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class Contracts:
    """Whose logs are followed."""

    ltz: Address
    perk_nft: Address
    points_sale: Address
    business_escrow: Address

    def all(self) -> tuple[Address, ...]:
        return self.ltz, self.perk_nft, self.points_sale, self.business_escrow


@dataclass(frozen=True, slots=True)
class IndexerPolicy:
    """`follows_deep_reorgs`: dev chains only; elsewhere such a reorg stops the indexer."""

    poll_seconds: float = 1.0
    head_blocks: int = 16
    """Blocks a step near the head, with their headers."""
    range_blocks: int = 2_000
    """Blocks a getLogs range while far behind; halved when a node refuses."""
    final_depth: int = 64
    final_seconds: float = 60.0
    follows_deep_reorgs: bool = False
