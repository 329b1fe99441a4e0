"""The page of `ltzd status`, from the answer of `/status`: the worst first, readable at 80 columns.

A server of an older version leaves out some of the facts.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from ltzd.cli.options import with_config
from ltzd.cli.output import plain_text
from ltzd.values import ETHER

_BAR_WIDTH = 30
_LAST_RESORTS = ("behind", "disagrees")
"""Faults of nodes that are asked if no better one is left."""
_STYLES = {"page": "bold red", "ticket": "yellow", "notice": "dim"}


def page(facts: dict[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [_heading(facts), _conditions(facts)]
    nodes = facts.get("nodes", [])
    if "rewards" in facts:
        parts.append(_progress(facts))
    parts += [_processes(facts.get("processes", [])), _nodes(nodes)]
    parts.append(_leases(facts.get("leases", [])))
    parts.append(_lanes(facts.get("lanes", [])))
    return Group(*parts)


def _heading(facts: dict[str, Any]) -> Text:
    style = "bold green" if facts["ready"] else "bold red"
    processes = facts.get("processes", [])
    missing = sum(1 for process in processes if process["isMissing"])
    running = len(processes) - missing
    count = f"  {running} process{'' if running == 1 else 'es'}" if processes else ""
    return Text.assemble(
        (f"ltzd {facts['version']}  ", "bold"),
        "no process answers; the database says " if "readFrom" in facts else "",
        f"{facts['process']} is " if "process" in facts else "",
        ("ready" if facts["ready"] else "not ready", style),
        f"  database {facts['database']}{count}{f', {missing} missing' if missing else ''}",
    )


def _conditions(facts: dict[str, Any]) -> RenderableType:
    """One entry for each thing that is wrong, in the server's order: the worst first."""
    if "conditions" not in facts:
        lines = facts["reasons"] + facts.get("warnings", [])
        return Group(
            *(Text.assemble("  ", plain_text(line), style="yellow") for line in lines),
            *_pauses(facts.get("lanes", [])),
        )
    table = Table.grid(Column(no_wrap=True, width=8), Column(), padding=(0, 1))
    for condition in facts["conditions"]:
        style = _STYLES.get(condition["severity"], "")
        text = plain_text(with_config(condition["sentence"], sys.argv))
        if condition["severity"] != "notice":
            text.append(f" → {condition['runbook']}", style="dim")
        table.add_row(Text(f"  {condition['severity']}", style=style), text)
    return table


def _processes(processes: list[dict[str, Any]]) -> RenderableType:
    if not processes:
        return Group()
    table = Table(
        Column("process", overflow="fold"),
        Column("roles", overflow="fold"),
        *(Column(title, no_wrap=True) for title in ("version", "up", "reported")),
        box=None,
        padding=(0, 1),
    )
    for process in processes:
        table.add_row(
            process["name"],
            ", ".join(process["roles"]),
            process["version"],
            _duration(process["startedSeconds"]),
            f"{_duration(process['seenSecondsAgo'])} ago"
            + (" (missing)" if process["isMissing"] else ""),
            style="red" if process["isMissing"] else "",
        )
    return table


def _duration(seconds: float) -> str:
    """A short duration, such as 4 s, 12 min, 3 h or 5 days."""
    for unit, length, limit in (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


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
        f"{_above_limit(rewards['aboveMintLimit'])}{_may_wait(rewards.get('mayWait', 0))}, "
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


def _may_wait(count: int) -> str:
    return f" ({count} may wait for cheaper blocks)" if count else ""


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


def _lanes(lanes: list[dict[str, Any]]) -> RenderableType:
    if not lanes:
        return Group()
    table = Table(
        Column("lane", no_wrap=True),
        Column("wallet", min_width=9),  # truncated on a narrow terminal, unlike the numbers
        Column("holder", min_width=7),
        *(
            Column(title, no_wrap=True)
            for title in ("nonce", "sign", "publ", "mined", "oldest", "coin")
        ),
        box=None,
        padding=(0, 1, 0, 0),
    )
    for lane in lanes:
        table.add_row(
            lane["kind"],
            lane["wallet"],
            _holder(lane),
            str(lane["nextNonce"]),
            str(lane["signed"]),
            str(lane["published"]),
            str(lane["mined"]),
            "-" if lane["oldestSeconds"] is None else f"{lane['oldestSeconds']:.0f} s",
            "-" if lane["balanceWei"] is None else f"{int(lane['balanceWei']) / ETHER:.4f}",
        )
    return table


def _holder(lane: dict[str, Any]) -> str:
    """The process that holds the lane, or why none does."""
    if lane["stopped"]:
        return "stopped"
    held = "yes" if lane["isHeld"] else "no"
    return lane.get("holder") or held


def _leases(leases: list[dict[str, Any]]) -> RenderableType:
    """The process that follows the chain; the holders of lanes are shown with the lanes."""
    leases = [lease for lease in leases if not lease["name"].startswith("lane/")]
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
