"""`python -m benchmarks [NAME ...]`: all benchmarks, or those named."""

import argparse

import uvloop

from benchmarks import intake


async def _intake(options: argparse.Namespace) -> None:
    await intake.run(seconds=options.seconds, rounds=options.rounds, in_document=options.record)


BENCHMARKS = {"intake": _intake}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each side in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="put the lines in docs/benchmarks.md")
    options = parser.parse_args()
    for name in options.names or BENCHMARKS:
        print(f"{name}:", flush=True)
        uvloop.run(BENCHMARKS[name](options))


if __name__ == "__main__":
    main()
