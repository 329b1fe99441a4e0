"""A wallet's signer that is away, or that waits, as long as a test wants, and what it signs."""

from collections.abc import Callable, Sequence

from ltzd.chain.signing import SignedTransaction, Signer, UnsignedTransaction
from ltzd.errors import SignerUnavailable
from ltzd.store.wakeups import Wakeup
from ltzd.values import Address


class UnreliableSigner:
    """Signs with a local key. While `is_away` it fails; it waits while `holds` says so."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self.is_away = False
        self.holds: Callable[[UnsignedTransaction], bool] = lambda _transaction: False
        self.requests = 0
        self.most_at_once = 0
        self._at_once = 0
        self._polled = Wakeup(0.005)

    @property
    def address(self) -> Address:
        return self._signer.address

    async def sign_all(
        self, transactions: Sequence[UnsignedTransaction]
    ) -> list[SignedTransaction]:
        self.requests += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            while any(map(self.holds, transactions)):
                await self._polled.wait()
            if self.is_away:
                raise SignerUnavailable("The test's signer is away")
            return await self._signer.sign_all(transactions)
        finally:
            self._at_once -= 1


def a_transaction(nonce: int = 7, *, is_legacy: bool = False) -> UnsignedTransaction:
    to = Address(b"\x11" * 20)
    return UnsignedTransaction(1, nonce, 10**9, 3 * 10**9, 60_000, to, 0, b"\x01\x02", is_legacy)
