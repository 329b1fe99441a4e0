"""The identity provider's answers, read without I/O.

Nothing that the provider sends is trusted: an answer of an unknown shape raises
`MalformedAnswerError`, never a KeyError, and no text of the provider reaches a message of ours (it
may hold an e-mail address).
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from ltzd.providers.outbound.http_client import HttpResponse, MalformedAnswerError, object_in
from ltzd.providers.outbound.json_bodies import finite_number
from ltzd.rules.http_dates import parse_http_date
from ltzd.values import ZERO_ADDRESS, Address, address_of, checksummed

_DID = re.compile(r"did:privy:[a-z0-9]+")
_MAX_SUBJECT_LENGTH = 128
_WALLET_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ERROR_CODE = re.compile(r"[a-z0-9_]{1,64}")

MAX_WALLETS = 256
"""Wallets of one user that are read; later ones are ignored."""


@dataclass(frozen=True, slots=True)
class ProviderUser:
    """`rows` are the user's linked accounts as they came."""

    subject: str
    wallet: Address | None
    rows: Sequence[object] = field(repr=False)


def user_in(response: HttpResponse) -> ProviderUser:
    user = object_in(response)
    subject, accounts = user.get("id"), user.get("linked_accounts")
    if not isinstance(subject, str) or not is_subject(subject):
        raise MalformedAnswerError("the user has no usable id")
    if not isinstance(accounts, list):
        raise MalformedAnswerError("the user has no list of linked accounts")
    return ProviderUser(subject, first_wallet(accounts), accounts)


def is_subject(text: str) -> bool:
    """Whether the text has the form of a user's id, and is safe in a URL's path."""
    return len(text) <= _MAX_SUBJECT_LENGTH and _DID.fullmatch(text) is not None


def rows_in(response: HttpResponse, subject: str) -> list[object]:
    """The linked accounts of the user `subject`, who must be the user in the answer."""
    user = object_in(response)
    accounts = user.get("linked_accounts")
    if user.get("id") != subject:
        raise MalformedAnswerError("the answer is about another user")
    if not isinstance(accounts, list):
        raise MalformedAnswerError("the user has no list of linked accounts")
    return accounts


def wallet_id_in(response: HttpResponse, wallet: Address) -> str | None:
    """The id under which the provider keeps the wallet's key; None if its owner keeps the key."""
    for account in user_in(response).rows:
        if _is_embedded_wallet(account) and _wallet_address(account.get("address")) == wallet:
            wallet_id = account.get("id")
            if isinstance(wallet_id, str) and _WALLET_ID.fullmatch(wallet_id):
                return wallet_id
    return None


def is_kept_by_owner(response: HttpResponse, wallet: Address) -> bool:
    """Whether the user has linked the wallet, and so keeps its key."""
    rows = [row for row in user_in(response).rows if isinstance(row, dict)]
    return wallet in ethereum_wallets([row for row in rows if not _is_held_by_provider(row)])


def ethereum_wallets(accounts: Sequence[object]) -> tuple[Address, ...]:
    """Embedded and linked wallets, from a user's rows or an identity token's shorter ones.

    Embedded wallets come first, by their index: the provider can sign for them.
    """
    rows = [row for row in accounts if isinstance(row, dict) and _is_proven_wallet(row)]
    rows.sort(key=lambda row: (not _is_held_by_provider(row), _wallet_index(row)))
    wallets: dict[Address, None] = {}
    for row in rows:
        if len(wallets) == MAX_WALLETS:
            break
        # A malformed address is skipped: it is no reason to refuse the user's other wallets.
        with contextlib.suppress(MalformedAnswerError):
            wallets[_wallet_address(row.get("address"))] = None
    return tuple(wallets)


def existing_subject_in(response: HttpResponse) -> str | None:
    """The user that a refused creation names: in `cause`, else in the error's text."""
    body = response.json_object() or {}
    for name in ("cause", "error", "message"):
        value = body.get(name)
        match = _DID.search(value if isinstance(value, str) else _nested_message(value))
        if match:
            return match[0]
    return None


def error_code_in(response: HttpResponse) -> str | None:
    """The provider's error code, if it is one that is fit for a log."""
    code = (response.json_object() or {}).get("code")
    return code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else None


def requested_wait(response: HttpResponse, now: float) -> float | None:
    """Seconds that the provider asks us to wait, from any of the three headers it is known to send.

    `now` is in Unix seconds.
    """
    headers = response.headers
    if (millis := finite_number(headers.get("retry-after-ms"))) is not None:
        return max(0.0, millis / 1000)
    if (text := headers.get("retry-after")) is not None:
        seconds = finite_number(text)
        at = parse_http_date(text) if seconds is None else None
        wait = seconds if at is None else at.timestamp() - now
        return None if wait is None else max(0.0, wait)
    if (reset := finite_number(headers.get("x-ratelimit-reset"))) is not None:
        return max(0.0, reset - now)
    return None


def first_wallet(accounts: Sequence[object]) -> Address | None:
    """The user's own wallet: of the embedded ones, that with the lowest index."""
    wallets = [account for account in accounts if _is_embedded_wallet(account)]
    if not wallets:
        return None
    first = min(wallets, key=_wallet_index)
    return _wallet_address(first.get("address"))


def _is_embedded_wallet(account: object) -> TypeGuard[dict[str, object]]:
    return (
        isinstance(account, dict)
        and account.get("type") == "wallet"
        and account.get("connector_type") == "embedded"
        and account.get("wallet_client_type") == "privy"
        and account.get("chain_type") == "ethereum"
    )


def _is_proven_wallet(account: Mapping[str, object]) -> bool:
    """The provider holds an embedded wallet's key; a linked one has the time of its signature."""
    if account.get("type") != "wallet" or account.get("chain_type") != "ethereum":
        return False
    return _is_held_by_provider(account) or all(
        account.get(name, 0) is not None for name in ("latest_verified_at", "lv")
    )


def _is_held_by_provider(wallet: Mapping[str, object]) -> bool:
    return wallet.get("wallet_client_type") == "privy"


def _wallet_index(wallet: Mapping[str, object]) -> float:
    index = wallet.get("wallet_index")
    return index if isinstance(index, int) else float("inf")


def _wallet_address(text: object) -> Address:
    try:
        address = address_of(text) if isinstance(text, str) else ZERO_ADDRESS
    except ValueError as error:
        raise MalformedAnswerError("the wallet's address is malformed") from error
    # An address with a wrong checksum is damaged, and tokens minted to it would be lost.
    if address == ZERO_ADDRESS or text not in {checksummed(address), "0x" + address.hex()}:
        raise MalformedAnswerError("the wallet's address is malformed")
    return address


def _nested_message(value: object) -> str:
    message = value.get("message") if isinstance(value, dict) else None
    return message if isinstance(message, str) else ""
