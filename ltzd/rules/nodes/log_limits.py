"""How many blocks one `eth_getLogs` may span at a node: by its block limit and by its result limit.

The result limit becomes a number of blocks through `density`, the results of a block lately. The
density rises at once and falls slowly, so that a busy range after a quiet one costs few refusals.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from ltzd.rules.nodes.limits import Limit, after_refusal, after_success, limit_from

_DENSITY_DECAY: Final = 7 / 8


class LogLimits(msgspec.Struct, frozen=True):
    blocks: Limit
    results: Limit
    density: float = 0.0
    """Results of a block."""

    @property
    def range_blocks(self) -> int:
        """The most blocks that the next range may have, at least 1."""
        if self.density <= 0:
            return self.blocks.size
        return max(1, min(self.blocks.size, int(self.results.size / self.density)))


def log_limits(blocks: int, results: int, most_results: int) -> LogLimits:
    """Limits that begin at `blocks`, which they never exceed, and at `results`."""
    return LogLimits(limit_from(blocks), limit_from(results, most_results))


def after_logs(limits: LogLimits, blocks: int, results: int) -> LogLimits:
    """The limits after a range of `blocks` answered `results` logs."""
    learned, here = limits.results, results / blocks
    if results + here > learned.size:  # One more block might have held too many.
        learned = after_success(learned, learned.size)
    density = max(here, limits.density * _DENSITY_DECAY)
    return LogLimits(after_success(limits.blocks, blocks), learned, density)


def after_wide_range(limits: LogLimits, blocks: int, named: int | None = None) -> LogLimits:
    """The limits after a range was refused for its blocks; `named` is the number allowed."""
    return replace(limits, blocks=after_refusal(limits.blocks, blocks, named))


def after_many_results(
    limits: LogLimits,
    blocks: int,
    named_blocks: int | None = None,
    named_results: int | None = None,
) -> LogLimits:
    """The limits after a range was refused for its results.

    `named_blocks` is the range that the node proposes, which fits this query and no other;
    `named_results` is the number of results that the node allows. Without either the result limit
    falls if it chose the range, and else the block limit.
    """
    results, density = limits.results, limits.density
    expected = int(density * blocks)
    if named_results is not None and named_results >= 1:
        density = max(density, (named_results + 1) / blocks)
        if named_results < results.size:
            results = after_refusal(results, results.size, named_results)
    elif 2 * expected >= results.size:
        results = after_refusal(results, expected)
    if named_blocks is not None and 1 <= named_blocks < blocks:
        # The quarter keeps `range_blocks` at the named number despite rounding.
        density = max(density, results.size / (named_blocks + 0.25))
    learned = replace(limits, results=results, density=density)
    if learned.range_blocks < blocks:
        return learned
    return after_wide_range(learned, blocks)
