"""`python -m benchmarks [NAME ...]`: runs the named benchmarks, by default all."""

import argparse
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from benchmarks import (
    backfill,
    bulk,
    gas,
    head_latency,
    intake,
    large_index,
    mint_fleet,
    minting,
    pregeneration,
    relay_fleet,
    relays,
    signing,
    tokens,
    webhooks,
)
from benchmarks.limits import notifying_commits
from benchmarks.overload import sides as overload
from benchmarks.peers import events as event_peers
from benchmarks.reads import board_reads, leaderboard, perks
from benchmarks.scale import books, http_processes, idle, vacuum, wal

SECONDS = {
    "signing": 1.0,
    "tokens": 1.0,
    "intake": 5.0,
    "event-peers": 5.0,
    "minting": 60.0,
    "mint-fleet": 8.0,
    "bulk": 4.0,
    "commits": 3.0,
    "gas": 0.0,
    "relays": 8.0,
    "relay-fleet": 12.0,
    "perks": 3.0,
    "pregeneration": 0.0,
    "webhooks": 5.0,
    "leaderboard": 3.0,
    "board-reads": 3.0,
    "http-scale": 5.0,
    "idle": 60.0,
    "overload": 8.0,
    "wal": 0.0,
    "vacuum": 300.0,
    "store": 0.0,
    "books": 0.0,
    "head-latency": 0.0,
    "backfill": 0.0,
}
"""The default seconds of each side in each round; 0 for a benchmark of a fixed amount of work."""


Run = Callable[[float, argparse.Namespace], Coroutine[Any, Any, None]]


def _timed(run: Callable[..., Coroutine[Any, Any, None]]) -> Run:
    """Runs a benchmark whose sides alternate for `seconds` each, in several rounds."""
    return lambda seconds, options: run(
        seconds=seconds, rounds=options.rounds, in_document=options.record
    )


RUNS: dict[str, Run] = {
    "signing": _timed(signing.run),
    "tokens": _timed(tokens.run),
    "intake": _timed(intake.run),
    "event-peers": _timed(event_peers.run),
    "minting": lambda seconds, options: minting.run(seconds=seconds, in_document=options.record),
    "mint-fleet": _timed(mint_fleet.run),
    "bulk": _timed(bulk.run),
    "commits": _timed(notifying_commits.run),
    "gas": lambda _, options: gas.run(in_document=options.record),
    "relays": _timed(relays.run),
    "relay-fleet": _timed(relay_fleet.run),
    "perks": _timed(perks.run),
    "pregeneration": lambda _, options: pregeneration.run(
        rounds=options.rounds, in_document=options.record
    ),
    "webhooks": _timed(webhooks.run),
    "leaderboard": _timed(leaderboard.run),
    "board-reads": _timed(board_reads.run),
    "overload": _timed(overload.run),
    "http-scale": _timed(http_processes.run),
    "idle": _timed(idle.run),
    "wal": lambda _, options: wal.run(rounds=options.rounds, in_document=options.record),
    "vacuum": lambda seconds, options: vacuum.run(seconds=seconds, in_document=options.record),
    "store": lambda _, options: large_index.run(
        rows=options.rows, rounds=options.rounds, in_document=options.record
    ),
    "books": lambda _, options: books.run(rounds=options.rounds, in_document=options.record),
    "backfill": lambda _, options: backfill.run(rounds=options.rounds, in_document=options.record),
    "head-latency": lambda _, options: head_latency.run(
        rounds=options.rounds, in_document=options.record
    ),
}


async def _run(name: str, options: argparse.Namespace) -> None:
    await RUNS[name](options.seconds or SECONDS[name], options)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SECONDS))
    parser.add_argument("--seconds", type=float, help="of each side in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10**7, help="blocks of the index of `store`")
    parser.add_argument("--record", action="store_true", help="put the lines in docs/benchmarks.md")
    options = parser.parse_args()
    unknown = set(options.names) - set(SECONDS)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    for name in options.names or SECONDS:
        print(f"{name}:", flush=True)
        uvloop.run(_run(name, options))


if __name__ == "__main__":
    main()
