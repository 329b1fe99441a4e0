"""`ltzd event trigger`: sends one signed event of a brand through the public port.

The command signs with the brand's security key from the database, so it needs the master key and a
running ltzd. The event is an ordinary one: limits count it, and its reward is minted.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from ltzd.cli import dev_json
from ltzd.cli.admin_target import url_of
from ltzd.cli.brand.lookup import describe_brand, find_brand
from ltzd.cli.output import plain_text, print_json, print_message
from ltzd.cli.sign import signed_headers, target_of
from ltzd.cli.targets import Target, open_connection
from ltzd.daemon.settings.settings import read_settings
from ltzd.errors import Misconfigured, Refused, Unavailable
from ltzd.store.brands import keys as brand_keys
from ltzd.values import hex_of

_PATH = "/service-api/manual-event"
_ANSWER_SECONDS = 30.0
"""Longer than ltzd waits for the hash of a mint."""


@dataclass(frozen=True, slots=True)
class TriggeredEvent:
    """The event as typed; `domain` None is the first one of the brand, `metadata` is JSON."""

    event_type: str
    brand: str
    email: str = field(repr=False)
    domain: str | None = None
    metadata: str | None = None


def base_url_of(data_dir: Path, config: Path | None) -> str:
    """The public port on this machine. Raises Misconfigured."""
    if config is None:
        return dev_json.read_base_url(data_dir)
    return url_of(read_settings(config).http)


def trigger(
    target: Target, base_url: str, event: TriggeredEvent, *, mints_real_ltz: bool, as_json: bool
) -> None:
    """Print the answer. Raises Misconfigured, NotFound, Refused and Unavailable."""
    if not (target.is_for_testing or mints_real_ltz):
        raise Refused(
            "The event would mint real LTZ: give --yes. Without it the command is for dev mode and "
            "for settings with staging = true."
        )
    answer = asyncio.run(_send(target, base_url.rstrip("/"), event))
    if as_json:
        print_json(answer)
        return
    print_message(
        f"Event {answer['eventId']} is accepted: {answer['rewardAmount']} LTZ for "
        f"{answer['walletAddress']}, {answer['status']}."
    )
    print_message(f"`ltzd event show {answer['eventId']}` follows it to its mint.")


async def _send(target: Target, base_url: str, event: TriggeredEvent) -> dict[str, Any]:
    body, brand_id, key = await _signable(target, event)
    url = f"{base_url}{_PATH}"
    headers = signed_headers("POST", target_of(url), body, brand_id, key)
    headers["Content-Type"] = "application/json"
    return await _post(url, body, headers)


async def _signable(target: Target, event: TriggeredEvent) -> tuple[bytes, str, str]:
    """The request's body, the brand's id and its security key."""
    async with open_connection(target, "event trigger") as connection:
        brand = await find_brand(connection, event.brand)
        secrets = await brand_keys.secrets_of(connection, brand.id, "security_key", target.sealer())
    if not secrets:
        raise Misconfigured(f"{describe_brand(brand)} has no security key.")
    values = {
        "brandId": hex_of(brand.id),
        "eventType": event.event_type,
        "userEmail": event.email,
        "domain": event.domain or next(iter(brand.domains), None),
        "metadata": _metadata(event.metadata),
    }
    given = {name: value for name, value in values.items() if value is not None}
    return msgspec.json.encode(given), hex_of(brand.id), secrets[0].text


def _metadata(text: str | None) -> object:
    try:
        value = None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise Refused("--metadata is not JSON.") from None
    if value is not None and not isinstance(value, dict):
        raise Refused('--metadata must be a JSON object such as {"channel_id": "7"}.')
    return value


async def _post(url: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=body, headers=headers) as reply,
        ):
            status, text = reply.status, await reply.read()
    except TimeoutError as error:
        raise Unavailable(
            f"{url} gave no answer within {_ANSWER_SECONDS:.0f} s, and may have recorded the "
            "event: see `ltzd event list` before you repeat it."
        ) from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise Misconfigured(
            f"The certificate of {url} is not trusted, or names another host: give --url with the "
            "host of the certificate."
        ) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unavailable(
            f"Nothing answers at {url}. Check that ltzd runs with the role http, or give --url."
        ) from error
    try:
        answer = msgspec.json.decode(text)
    except msgspec.DecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable(f"The server at {url} is not ltzd: it answered {status}.")
    if status not in {200, 202}:
        raise Refused(f"ltzd refused the event ({status}): {plain_text(_reason(answer, status))}.")
    return answer


def _reason(answer: dict[str, Any], status: int) -> str:
    reason = str(answer.get("error") or answer.get("message") or status)
    details = answer.get("details")
    faults = details.get("errors") if isinstance(details, dict) else None
    return ": ".join([reason, *map(str, faults)]) if isinstance(faults, list) else reason
