"""Where people look transactions up, on chains whose explorer everybody knows."""

from collections.abc import Mapping
from typing import Final

_EXPLORERS: Final[Mapping[int, str]] = {
    1: "https://etherscan.io",
    10: "https://optimistic.etherscan.io",
    56: "https://bscscan.com",
    137: "https://polygonscan.com",
    8453: "https://basescan.org",
    42161: "https://arbiscan.io",
    80002: "https://amoy.polygonscan.com",
    84532: "https://sepolia.basescan.org",
    421614: "https://sepolia.arbiscan.io",
    11155111: "https://sepolia.etherscan.io",
}
"""By chain id; `/tx/` and a hash are appended."""


def explorer_of(chain_id: int, configured: str | None) -> str | None:
    """The configured explorer, or the chain's own; None for a chain without a known explorer."""
    return configured or _EXPLORERS.get(chain_id)
