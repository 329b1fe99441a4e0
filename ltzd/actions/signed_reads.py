"""Reads by brands' servers, each of which uses up the nonce of its signature.

Reads that arrive while others are under way share the next two round trips: one uses up their
nonces, and the other reads. Both run at the same time, and a read whose nonce was used before is
refused whatever was found.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from ltzd.concurrency.batcher import Batcher
from ltzd.errors import DatabaseUnavailable, LtzdError, SignatureRefused
from ltzd.rules.request_signatures import NONCE_WAS_USED
from ltzd.values import Address

Item = TypeVar("Item")
Found = TypeVar("Found")


class SignedCaller(msgspec.Struct, frozen=True):
    """The brand that signed a request, and the request's nonce, not yet used up."""

    brand: Address
    nonce: str


class SignedReads(Generic[Item, Found]):
    """`use_nonces` tells in order which callers' nonces were unused; `read` finds the items in
    order.
    """

    def __init__(
        self,
        use_nonces: Callable[[Sequence[SignedCaller]], Awaitable[Sequence[bool]]],
        read: Callable[[Sequence[Item]], Awaitable[Sequence[Found]]],
    ) -> None:
        self._use_nonces = use_nonces
        self._read = read
        # One batch at a time, so that more reads share it.
        self._batches: Batcher[tuple[SignedCaller, Item], Found] = Batcher(
            self._read_all, max_concurrent=1
        )

    def begin(self, caller: SignedCaller, item: Item) -> asyncio.Future[Found]:
        """Raises SignatureRefused if the nonce was used before, and DatabaseUnavailable."""
        return self._batches.begin((caller, item))

    async def _read_all(
        self, reads: Sequence[tuple[SignedCaller, Item]]
    ) -> list[Found | LtzdError]:
        are_unused, answers = await asyncio.gather(
            self._use_nonces([caller for caller, _ in reads]),
            self._read_or_error([item for _, item in reads]),
        )
        return [
            answer if is_unused else SignatureRefused(NONCE_WAS_USED)
            for answer, is_unused in zip(answers, are_unused, strict=True)
        ]

    async def _read_or_error(self, items: Sequence[Item]) -> Sequence[Found | DatabaseUnavailable]:
        try:
            return await self._read(items)
        except DatabaseUnavailable as error:
            return [error] * len(items)
