"""`ltzd status`: shows the admin server's `/status` as a table or as JSON, once or every second."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from ltzd.cli.output import plain_text
from ltzd.errors import Misconfigured, Unavailable
from ltzd.http.loopback import is_loopback

TIMEOUT_SECONDS = 10.0
_BAR_WIDTH = 30
_LAST_RESORTS = ("behind", "disagrees")
"""Faults of nodes that are asked if no better one is left."""


def status(
    admin_url: str,
    follow: bool,
    as_json: bool,
    token: str | None = None,
    *,
    plain_http: bool = False,
    period_seconds: float = 1.0,
) -> None:
    """Print the status; with `follow` every `period_seconds` until Ctrl-C.

    Raises Unavailable, Misconfigured.
    """
    if token is not None and not plain_http:
        _require_encryption(admin_url)
    with suppress(KeyboardInterrupt):
        asyncio.run(_show(admin_url.rstrip("/"), follow, as_json, token, period_seconds))


def _require_encryption(admin_url: str) -> None:
    parts = urlsplit(admin_url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise Misconfigured(
            f"The token would go to {admin_url} unencrypted: use https://, or give --plain-http."
        )


async def _show(
    admin_url: str, follow: bool, as_json: bool, token: str | None, period_seconds: float
) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        facts = await fetch(session, admin_url)
        if as_json:
            await _print_lines(session, admin_url, facts, period_seconds if follow else None)
        elif follow and sys.stdout.isatty():
            await _refresh(session, admin_url, facts, period_seconds)
        elif follow:
            await _print_pages(session, admin_url, facts, period_seconds)
        else:
            Console().print(page(facts))


async def fetch(session: aiohttp.ClientSession, admin_url: str) -> dict[str, Any]:
    try:
        async with session.get(f"{admin_url}/status") as answer:
            if answer.status in {401, 403}:
                raise Misconfigured(
                    f"{admin_url} refused the request ({answer.status}): give --admin-token-file, "
                    "or use a loopback URL on that machine."
                )
            facts = msgspec.json.decode(await answer.read()) if answer.status == 200 else None
    except aiohttp.ClientConnectorCertificateError as error:
        raise Misconfigured(
            f"The certificate of {admin_url} is not trusted: name the file of its issuer's "
            "certificate in the variable SSL_CERT_FILE."
        ) from error
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise Unavailable(
            f"Nothing answers at {admin_url}. Check that ltzd runs and that this is its admin "
            "address."
        ) from error
    if not isinstance(facts, dict) or "version" not in facts:
        raise Unavailable(f"The server at {admin_url} is not an ltzd admin server.")
    return facts


async def _print_lines(
    session: aiohttp.ClientSession,
    admin_url: str,
    facts: dict[str, Any],
    period_seconds: float | None,
) -> None:
    """Print a line every period, or one line without a period."""
    while True:
        print(msgspec.json.encode(facts).decode(), flush=True)
        if period_seconds is None:
            return
        await asyncio.sleep(period_seconds)
        facts = await fetch(session, admin_url)


async def _print_pages(
    session: aiohttp.ClientSession, admin_url: str, facts: dict[str, Any], period_seconds: float
) -> None:
    """Print one page after the other, for a pipe or a file that cannot be redrawn."""
    console = Console()
    while True:
        console.print(page(facts), "")
        sys.stdout.flush()
        await asyncio.sleep(period_seconds)
        facts = await fetch(session, admin_url)


async def _refresh(
    session: aiohttp.ClientSession, admin_url: str, facts: dict[str, Any], period_seconds: float
) -> None:
    """Redraw the page every period, also while the server restarts."""
    with Live(page(facts), console=Console(file=sys.stdout), auto_refresh=False) as live:
        while True:
            await asyncio.sleep(period_seconds)
            try:
                facts = await fetch(session, admin_url)
                live.update(page(facts), refresh=True)
            except Unavailable as error:
                live.update(Group(page(facts), Text(error.message, style="red")), refresh=True)


def page(facts: dict[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [_heading(facts)]
    lines = facts["reasons"] + facts.get("warnings", [])
    parts += [Text(f"  {line}", style="yellow") for line in lines]
    nodes = facts.get("nodes", [])  # a server of an older version tells of no nodes
    if facts["database"] == "connected":
        parts += _pauses(facts["lanes"])
        parts += [_progress(facts), _nodes(nodes), _leases(facts.get("leases", []))]
        parts.append(_lanes(facts["lanes"]))
    else:
        parts.append(_nodes(nodes))
    return Group(*parts)


def _heading(facts: dict[str, Any]) -> Text:
    style = "bold green" if facts["ready"] else "bold red"
    return Text.assemble(
        (f"ltzd {facts['version']}  ", "bold"),
        ("ready" if facts["ready"] else "not ready", style),
        f"  roles {', '.join(facts['roles'])}  database {facts['database']}",
    )


def _progress(facts: dict[str, Any]) -> Table:
    chain, rewards = facts["chain"], facts["rewards"]
    table = Table(show_header=False, box=None, padding=(0, 2))
    if chain is not None:
        table.add_row(
            "chain",
            f"{chain['chainId']}: head {chain['head']}, followed to {chain['cursor']} "
            f"({chain['lagBlocks']} behind{_lag(chain.get('lagSeconds'))}), "
            f"final {chain['final']}{_finality(chain)}{_audited(chain)}",
        )
        if chain.get("secondsLeft"):
            table.add_row("backfill", _backfill(chain))
    about = "about " if rewards["mintedIsEstimate"] else ""
    table.add_row(
        "rewards",
        f"{rewards['queued']} queued{_age(rewards['oldestQueuedSeconds'])}"
        f"{_above_limit(rewards['aboveMintLimit'])}, "
        f"{rewards['inFlight']} in flight, {about}{rewards['minted']} minted",
    )
    relays = facts["relays"]
    table.add_row(
        "relays",
        f"{relays['queued']} queued{_age(relays['oldestQueuedSeconds'])}, "
        f"{relays['inFlight']} in flight",
    )
    table.add_row("events", f"{facts['eventsLastMinute']} in the last minute")
    for migration in facts.get("migrations", []):
        table.add_row("migration", _migration(migration))
    if facts.get("rebuild") is not None:
        table.add_row("rebuild", _rebuild(facts["rebuild"]))
    return table


def _backfill(chain: dict[str, Any]) -> RenderableType:
    """A bar, the rate and the time left, far from the head."""
    blocks = chain["head"] - chain["firstBlock"]
    done = chain["cursor"] - chain["firstBlock"]
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=blocks, completed=done, width=_BAR_WIDTH),
        f"{done / blocks:.0%}, {chain['blocksPerSecond']:,.0f} blocks/s, "
        f"{timedelta(seconds=round(chain['secondsLeft']))} left",
    )
    return bar


def _rebuild(rebuild: dict[str, Any]) -> str:
    """The open rebuild of the index."""
    state, block = rebuild["state"], rebuild["block"]
    part = "" if block is None else f", block {block:,} of {rebuild['head']:,}"
    error = "" if rebuild["error"] is None else f" ({rebuild['error']})"
    return f"{state}{part}{_since(rebuild['orderedSeconds'])}{error}"


def _migration(migration: dict[str, Any]) -> str:
    """A background migration that is not finished."""
    step, progress = migration["step"] or "waits for the indexer", migration["progress"]
    part = "" if progress is None else f", {progress:.0%}"
    error = "" if migration["error"] is None else f" (failed: {migration['error']})"
    return f"{migration['name']}: {step}{part}{_since(migration['startedSeconds'])}{error}"


def _since(seconds: float | None) -> str:
    return "" if seconds is None else f", for {seconds:.0f} s"


def _lag(seconds: float | None) -> str:
    if not seconds:
        return ""
    return f", {seconds:.0f} s" if seconds < 120 else f", {seconds / 60:.0f} min"


def _finality(chain: dict[str, Any]) -> str:
    """How far the newest final block is below the head, where the block time is known."""
    lag = _lag(chain.get("finalLagSeconds"))
    return f" ({chain['head'] - chain['final']} below the head{lag})" if lag else ""


def _audited(chain: dict[str, Any]) -> str:
    """How far the index was read a second time; a server of an older version tells nothing."""
    audited = chain.get("audited")
    return "" if audited is None else f", audited to {audited}"


def _pauses(lanes: list[dict[str, Any]]) -> list[Text]:
    return [
        Text(
            f"  The {lane['kind']} lane is paused: {lane['pausedFor']}, "
            f"since {lane['pausedSince']}{_person_reason(lane)}",
            style="yellow",
        )
        for lane in lanes
        if lane["pausedFor"] is not None
    ]


def _person_reason(lane: dict[str, Any]) -> str:
    reason = lane.get("pausedByHandReason")  # a server of an older version tells of no reason
    return "" if reason is None else f" ({plain_text(reason)})"


def _above_limit(count: int) -> str:
    return f" ({count} above the mint limit)" if count else ""


def _age(seconds: float | None) -> str:
    return "" if seconds is None else f" (oldest {seconds:.0f} s)"


def _nodes(nodes: list[dict[str, Any]]) -> RenderableType:
    """How this process sees each node. A node with a fault may be used if no better one is left."""
    if not nodes:
        return Group()
    table = Table(
        Column("node", min_width=9),
        *(Column(title, no_wrap=True) for title in ("used", "height", "latency", "answered")),
        Column("fault", no_wrap=True),
        Column("errors"),
        box=None,
        padding=(0, 1),
    )
    for node in nodes:
        table.add_row(
            node["name"],
            _use(node),
            _dash(node["height"]),
            _dash(node["latencySeconds"], lambda seconds: f"{seconds * 1000:.0f} ms"),
            _dash(node["secondsSinceAnswer"], lambda seconds: f"{seconds:.0f} s ago"),
            _dash(node["reason"]),
            ", ".join(f"{kind} {count}" for kind, count in sorted(node["errors"].items())),
        )
    return table


def _use(node: dict[str, Any]) -> str:
    if node["isUsable"]:
        return "yes" if node["inUse"] else "spare"
    return "last" if node["reason"] in _LAST_RESORTS else "no"


def _dash(value: Any, shown: Callable[[Any], str] = str) -> str:
    return "-" if value is None else shown(value)


def _lanes(lanes: list[dict[str, Any]]) -> Table:
    table = Table(
        Column("lane", no_wrap=True),
        Column("wallet", min_width=9),  # truncated on a narrow terminal, unlike the numbers
        *(
            Column(title, no_wrap=True)
            for title in ("held", "nonce", "signed", "published", "mined", "oldest", "coin")
        ),
        box=None,
        padding=(0, 1),
    )
    for lane in lanes:
        table.add_row(
            lane["kind"],
            lane["wallet"],
            "stopped" if lane["stopped"] else "yes" if lane["isHeld"] else "no",
            str(lane["nextNonce"]),
            str(lane["signed"]),
            str(lane["published"]),
            str(lane["mined"]),
            "-" if lane["oldestSeconds"] is None else f"{lane['oldestSeconds']:.0f} s",
            "-" if lane["balanceWei"] is None else f"{int(lane['balanceWei']) / 10**18:.4f}",
        )
    return table


def _leases(leases: list[dict[str, Any]]) -> RenderableType:
    """The process that serves each lane and the chain; a standby takes over a lease in silence."""
    if not leases:
        return Group()
    table = Table(
        Column("lease", min_width=9),
        *(Column(title, no_wrap=True) for title in ("holder", "for", "renewed")),
        box=None,
        padding=(0, 1),
    )
    for lease in leases:
        table.add_row(
            lease["name"],
            lease["holder"],
            f"{lease['heldSeconds']:.0f} s",
            f"{lease['renewedSecondsAgo']:.1f} s ago",
        )
    return table
