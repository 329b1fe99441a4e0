"""The identity provider's users and their wallets, in memory and in a journal.

A user or wallet is found as soon as it is created, but may appear in an answer only after `saved`,
so that a kill -9 never undoes an answer. Times are in Unix seconds.
"""

import secrets
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import coincurve
import msgspec

from ltzd.dev.sandbox.identity.accounts import (
    Account,
    Key,
    claimed_email,
    identity_key,
    index_key,
    index_keys,
)
from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.values import Address, bytes_of, checksummed, hex_of, keccak

_CUID_LETTERS = (string.ascii_lowercase + string.digits).encode()
_CUID_LETTER_OF_BYTE = bytes(_CUID_LETTERS[byte % len(_CUID_LETTERS)] for byte in range(256))


@dataclass(frozen=True, slots=True)
class EmbeddedWallet:
    id: str
    address: str
    private_key: bytes = field(repr=False)
    index: int
    created_at: int
    signer: str | None = None
    """The id of the additional signer, which may sign besides the owner."""


class WalletRequest(msgspec.Struct, frozen=True):
    """A wallet to create; its additional `signer` cannot be added later."""

    signer: str | None = None


class SandboxUser(msgspec.Struct):
    subject: str
    created_at: int
    accounts: list[Account]
    custom_metadata: Mapping[str, object]
    wallets: list[EmbeddedWallet] = msgspec.field(default_factory=list)
    spent_keys: set[str] = msgspec.field(default_factory=set)
    sequence: int = 0


class AccountsConflictError(Exception):
    """Some, but not all, of the accounts belong to `owner`."""

    def __init__(self, owner: SandboxUser) -> None:
        super().__init__(owner.subject)
        self.owner = owner


class UserStore:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._users: dict[str, SandboxUser] = {}
        self._order: list[SandboxUser] = []
        self._positions: dict[str, int] = {}
        self._by_account: dict[Key, SandboxUser] = {}
        self._wallets: dict[str, EmbeddedWallet] = {}

    def __len__(self) -> int:
        return len(self._order)

    def user(self, subject: str) -> SandboxUser | None:
        return self._users.get(subject)

    def find(self, kind: str, name: str, value: str) -> SandboxUser | None:
        return self._by_account.get(index_key(kind, name, value))

    def wallet(self, wallet_id: str) -> EmbeddedWallet | None:
        return self._wallets.get(wallet_id)

    def owner_of_email(self, accounts: Sequence[Account]) -> SandboxUser | None:
        """The user with an e-mail account whose address one of these OAuth accounts has."""
        keys = filter(None, map(claimed_email, accounts))
        return next((self._by_account[key] for key in keys if key in self._by_account), None)

    def owner_of(self, accounts: Sequence[Account]) -> SandboxUser | None:
        """Return the user who has all of these accounts, or None if no user has any.

        Raises AccountsConflictError if only some of them are a user's.
        """
        owners = [self._by_account.get(identity_key(account)) for account in accounts]
        first_owner = next((owner for owner in owners if owner is not None), None)
        if first_owner is not None and any(owner is not first_owner for owner in owners):
            raise AccountsConflictError(first_owner)
        return first_owner

    def create(
        self,
        accounts: list[Account],
        wallets: Sequence[WalletRequest],
        custom_metadata: Mapping[str, object],
    ) -> SandboxUser:
        user = SandboxUser(f"did:privy:{_new_cuid()}", int(time.time()), accounts, custom_metadata)
        user.wallets = [_new_wallet(index, order) for index, order in enumerate(wallets)]
        self._index_user(user)
        user.sequence = self._journal.append(_user_record(user))
        return user

    def add_wallets(
        self, user: SandboxUser, wallets: Sequence[WalletRequest], idempotency_key: str | None
    ) -> None:
        """Create wallets in each call, as the vendor does, unless the key was used before."""
        if idempotency_key is not None and idempotency_key in user.spent_keys:
            return
        next_index = len(user.wallets)
        new = [_new_wallet(next_index + offset, order) for offset, order in enumerate(wallets)]
        self._attach_wallets(user, new, idempotency_key)
        record = {"kind": "wallets", "subject": user.subject, "idempotency_key": idempotency_key}
        user.sequence = self._journal.append({**record, "wallets": _wallet_records(new)})

    def link(self, user: SandboxUser, account: Account) -> None:
        """Move the account to this user from whichever user had it."""
        if self._by_account.get(identity_key(account)) is not user:
            self._move(user, account)
            record = {"kind": "linked", "subject": user.subject, "account": account}
            user.sequence = self._journal.append({**record, "wallets": []})

    def page(self, after: str | None, limit: int) -> Sequence[SandboxUser]:
        """Users in order of creation, after a cursor. Raises KeyError for an unknown cursor."""
        start = 0 if after is None else self._positions[after] + 1
        return self._order[start : start + limit]

    def is_saved(self, user: SandboxUser) -> bool:
        return self._journal.is_durable(user.sequence)

    async def saved(self, user: SandboxUser) -> SandboxUser:
        """Return the user once all of its records are on disk."""
        await self._journal.wait_durable(user.sequence)
        return user

    def apply_record(self, record: Record) -> None:
        """Apply one record of the journal at the start."""
        wallets = [_wallet_from(row) for row in _rows(record["wallets"])]
        if record["kind"] == "wallets":
            key = record["idempotency_key"]
            user = self._users[str(record["subject"])]
            self._attach_wallets(user, wallets, key if isinstance(key, str) else None)
            return
        if record["kind"] == "linked":
            account = record["account"]
            assert isinstance(account, dict)
            self._move(self._users[str(record["subject"])], account)
            return
        metadata = record["custom_metadata"]
        assert isinstance(metadata, dict)
        self._index_user(
            SandboxUser(
                str(record["subject"]),
                int(str(record["created_at"])),
                _rows(record["accounts"]),
                metadata,
                wallets,
            )
        )

    def _index_user(self, user: SandboxUser) -> None:
        self._users[user.subject] = user
        self._positions[user.subject] = len(self._order)
        self._order.append(user)
        for account in user.accounts:
            for key in index_keys(account):
                self._by_account[key] = user
        self._index_wallets(user, user.wallets)

    def _move(self, user: SandboxUser, account: Account) -> None:
        """Move the account with the fields that it had at its former owner."""
        key = identity_key(account)
        former = self._by_account.get(key)
        if former is not None:
            (account,) = [each for each in former.accounts if identity_key(each) == key]
            former.accounts.remove(account)
        user.accounts.append(account)
        for index in index_keys(account):
            self._by_account[index] = user

    def _attach_wallets(
        self, user: SandboxUser, wallets: list[EmbeddedWallet], idempotency_key: str | None
    ) -> None:
        user.wallets.extend(wallets)
        if idempotency_key is not None:
            user.spent_keys.add(idempotency_key)
        self._index_wallets(user, wallets)

    def _index_wallets(self, user: SandboxUser, wallets: list[EmbeddedWallet]) -> None:
        for wallet in wallets:
            self._by_account[index_key("wallet", "address", wallet.address)] = user
            self._wallets[wallet.id] = wallet


def _new_cuid() -> str:
    """A unique id in the vendor's form. Some letters come more often: it is no secret."""
    return "c" + secrets.token_bytes(24).translate(_CUID_LETTER_OF_BYTE).decode()


def _new_wallet(index: int, order: WalletRequest) -> EmbeddedWallet:
    key = coincurve.PrivateKey()
    address = Address(keccak(key.public_key.format(compressed=False)[1:])[-20:])
    created_at = int(time.time())
    return EmbeddedWallet(
        _new_cuid(), checksummed(address), key.secret, index, created_at, order.signer
    )


def _user_record(user: SandboxUser) -> Record:
    return {
        "kind": "user",
        "subject": user.subject,
        "created_at": user.created_at,
        "accounts": user.accounts,
        "custom_metadata": user.custom_metadata,
        "wallets": _wallet_records(user.wallets),
    }


def _wallet_records(wallets: Sequence[EmbeddedWallet]) -> list[Record]:
    return [
        {
            "id": wallet.id,
            "address": wallet.address,
            "private_key": hex_of(wallet.private_key),
            "index": wallet.index,
            "created_at": wallet.created_at,
            "signer": wallet.signer,
        }
        for wallet in wallets
    ]


def _wallet_from(row: Record) -> EmbeddedWallet:
    signer = row.get("signer")
    return EmbeddedWallet(
        str(row["id"]),
        str(row["address"]),
        bytes_of(str(row["private_key"])),
        int(str(row["index"])),
        int(str(row["created_at"])),
        signer if isinstance(signer, str) else None,
    )


def _rows(value: object) -> list[Record]:
    assert isinstance(value, list)
    return value
