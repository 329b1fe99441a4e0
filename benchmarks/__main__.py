"""`python -m benchmarks [NAME ...]`: all benchmarks, or those named."""

import argparse

import uvloop

from benchmarks import bulk, gas, intake, minting, perks, relays, signing, tokens, webhooks

SECONDS = {
    "signing": 1.0,
    "tokens": 1.0,
    "intake": 5.0,
    "minting": 60.0,
    "bulk": 4.0,
    "gas": 0.0,
    "relays": 8.0,
    "perks": 3.0,
    "webhooks": 5.0,
}
"""How long each takes on each side in each round, unless it is said; gas is not timed."""


async def _run(name: str, options: argparse.Namespace) -> None:
    seconds = options.seconds or SECONDS[name]
    match name:
        case "signing":
            await signing.run(seconds=seconds, rounds=options.rounds, in_document=options.record)
        case "tokens":
            await tokens.run(seconds=seconds, rounds=options.rounds, in_document=options.record)
        case "intake":
            await intake.run(seconds=seconds, rounds=options.rounds, in_document=options.record)
        case "minting":
            await minting.run(seconds=seconds, in_document=options.record)
        case "bulk":
            await bulk.run(seconds=seconds, rounds=options.rounds, in_document=options.record)
        case "gas":
            await gas.run(in_document=options.record)
        case "relays":
            await relays.run(seconds=seconds, rounds=options.rounds, in_document=options.record)
        case "perks":
            await perks.run(seconds=seconds, rounds=options.rounds, in_document=options.record)
        case "webhooks":
            await webhooks.run(seconds=seconds, rounds=options.rounds, in_document=options.record)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SECONDS))
    parser.add_argument("--seconds", type=float, help="of each side in each round")
    parser.add_argument("--rounds", type=int, default=3)
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
