"""What the identity provider's answers mean, decided without I/O.

Nothing that the provider sends is trusted: an unknown shape raises `MalformedAnswerError`,
never a KeyError, and no text of the provider reaches a message of ours (it may hold an e-mail
address).
"""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeGuard

from ltzd.providers.outbound.bounded_json import InvalidJsonError, decode_json
from ltzd.values import ZERO_ADDRESS, Address, address_of, checksummed

_DID = re.compile(r"did:privy:[a-z0-9]+")
_LONGEST_SUBJECT = 128
_WALLET_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SLUG = re.compile(r"[a-z0-9_]{1,64}")

MOST_WALLETS = 256
"""Of one user; later ones do not count."""


class MalformedAnswerError(Exception):
    """The provider answered something that is not what we asked for."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_ok(self) -> bool:
        return self.status in {200, 201}

    @property
    def is_passing(self) -> bool:
        """The same request may succeed later: what the vendor's own clients repeat."""
        return self.status in {408, 409, 429} or self.status >= 500


@dataclass(frozen=True, slots=True)
class ProviderUser:
    """`rows` are the linked accounts as they came."""

    subject: str
    wallet: Address | None
    rows: Sequence[object] = field(repr=False)


def user_in(reply: Reply) -> ProviderUser:
    user = object_in(reply.body)
    subject, accounts = user.get("id"), user.get("linked_accounts")
    if not isinstance(subject, str) or not is_subject(subject):
        raise MalformedAnswerError("the user has no usable id")
    if not isinstance(accounts, list):
        raise MalformedAnswerError("the user has no list of linked accounts")
    return ProviderUser(subject, first_wallet(accounts), accounts)


def is_subject(text: str) -> bool:
    """Whether a user may be called so, and the text be put into a URL."""
    return len(text) <= _LONGEST_SUBJECT and _DID.fullmatch(text) is not None


def rows_in(reply: Reply, subject: str) -> list[object]:
    """What is linked to the user whom we asked for."""
    user = object_in(reply.body)
    accounts = user.get("linked_accounts")
    if user.get("id") != subject:
        raise MalformedAnswerError("the user is not the one asked for")
    if not isinstance(accounts, list):
        raise MalformedAnswerError("the user has no list of linked accounts")
    return accounts


def wallet_id_in(reply: Reply, wallet: Address) -> str | None:
    """Under which id the provider keeps the wallet's key; None where its owner keeps it."""
    for account in user_in(reply).rows:
        if _is_embedded_wallet(account) and _wallet_address(account.get("address")) == wallet:
            wallet_id = account.get("id")
            if isinstance(wallet_id, str) and _WALLET_ID.fullmatch(wallet_id):
                return wallet_id
    return None


def ethereum_wallets(accounts: Sequence[object]) -> tuple[Address, ...]:
    """Embedded or linked, in the rows of a user as in the shorter ones of an identity token."""
    found: dict[Address, None] = {}
    for account in accounts:
        if len(found) == MOST_WALLETS:
            break
        if isinstance(account, dict) and _is_proven_wallet(account):
            # What is no address is nobody's wallet, and no reason to refuse the others.
            with contextlib.suppress(MalformedAnswerError):
                found[_wallet_address(account.get("address"))] = None
    return tuple(found)


def existing_subject_in(reply: Reply) -> str | None:
    """The user that a refused creation names: in `cause`, else in the error's text."""
    body = _object_or_none(reply.body) or {}
    for name in ("cause", "error", "message"):
        value = body.get(name)
        found = _DID.search(value if isinstance(value, str) else _nested_message(value))
        if found:
            return found[0]
    return None


def slug_in(reply: Reply) -> str | None:
    """The provider's error code, if it is one that is fit for a log."""
    code = (_object_or_none(reply.body) or {}).get("code")
    return code if isinstance(code, str) and _SLUG.fullmatch(code) else None


def pause_wished(reply: Reply, now: float) -> float | None:
    """Seconds that the provider asks us to wait, from any of the three headers it is known to send.

    `now` is in Unix seconds.
    """
    headers = reply.headers
    if (millis := _number(headers.get("retry-after-ms"))) is not None:
        return max(0.0, millis / 1000)
    if (text := headers.get("retry-after")) is not None:
        seconds = _number(text)
        at = _http_date(text) if seconds is None else None
        wished = seconds if at is None else at - now
        return None if wished is None else max(0.0, wished)
    if (reset := _number(headers.get("x-ratelimit-reset"))) is not None:
        return max(0.0, reset - now)
    return None


def object_in(body: bytes) -> dict[str, object]:
    found = _object_or_none(body)
    if found is None:
        raise MalformedAnswerError("the answer is no JSON object")
    return found


def first_wallet(accounts: Sequence[object]) -> Address | None:
    """The one that counts: embedded, with the lowest index."""
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
    """The provider holds an embedded wallet's key; of another it says when its owner signed."""
    if account.get("type") != "wallet" or account.get("chain_type") != "ethereum":
        return False
    is_embedded = account.get("wallet_client_type") == "privy"
    return is_embedded or all(
        account.get(name, 0) is not None for name in ("latest_verified_at", "lv")
    )


def _wallet_index(wallet: Mapping[str, object]) -> float:
    index = wallet.get("wallet_index")
    return index if isinstance(index, int) else float("inf")


def _wallet_address(text: object) -> Address:
    try:
        address = address_of(text) if isinstance(text, str) else ZERO_ADDRESS
    except ValueError as error:
        raise MalformedAnswerError("the wallet's address is none") from error
    # A wrong checksum is a damaged address, and what is minted to it is gone.
    if address == ZERO_ADDRESS or text not in {checksummed(address), "0x" + address.hex()}:
        raise MalformedAnswerError("the wallet's address is none")
    return address


def _object_or_none(body: bytes) -> dict[str, object] | None:
    try:
        value = decode_json(body)
    except InvalidJsonError:
        return None
    return value if isinstance(value, dict) else None


def _nested_message(value: object) -> str:
    message = value.get("message") if isinstance(value, dict) else None
    return message if isinstance(message, str) else ""


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
