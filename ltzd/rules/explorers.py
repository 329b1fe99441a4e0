"""The block explorers of well-known chains."""

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
"""By chain id; callers append `/tx/` and a hash."""


def explorer_of(chain_id: int, configured: str | None) -> str | None:
    """The configured explorer, else the chain's own. Returns None if neither is known."""
    return configured or _EXPLORERS.get(chain_id)
