"""The generated part of docs/dev-chain.md: methods of the tester chain beside anvil's.

Every client runs the same actions on a new chain of each kind, and every known method is called
on both. `python -m tests.support.clients.method_page` writes the page anew.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from ltzd.dev.services.chain import Kind
from ltzd.dev.tester_chain.errors import METHOD_NOT_FOUND
from ltzd.dev.tester_chain.json_rpc.methods import METHODS
from tests.support.chain.chains import a_chain
from tests.support.clients.cast_actions import cast_outcomes
from tests.support.clients.method_names import ANVIL_METHODS
from tests.support.clients.programs import ROOT, answers_of, install
from tests.support.clients.web3_actions import Outcome, web3_outcomes

PAGE: Final = ROOT / "docs" / "dev-chain.md"
BEGIN: Final = "<!-- Generated: `make dev-chain-page` writes what follows. -->\n"
TITLES: Final = {
    "reads": "viem: reads",
    "filters": "viem: filters and subscriptions",
    "writes": "viem: transactions and signatures",
    "settings": "viem: the test client",
    "web3": "web3.py",
    "ethers": "ethers",
    "web3js": "web3.js",
    "cast": "cast",
}
_SUBSCRIPTIONS: Final = ("eth_subscribe", "eth_unsubscribe")
Pair = tuple[Outcome, Outcome]
"""One action's outcomes on the tester chain and on anvil."""


@dataclass(frozen=True)
class Comparison:
    actions: dict[str, list[Pair]]
    known: dict[str, tuple[bool, bool]]
    """Whether the tester chain and anvil know a method, by its name."""

    def generated(self) -> str:
        return "\n".join([*self._action_tables(), *self._method_table(), ""])

    def page(self, text: str) -> str:
        """The page with the generated part replaced."""
        return text.partition(BEGIN)[0] + BEGIN + "\n" + self.generated()

    def _action_tables(self) -> Iterator[str]:
        for group, pairs in self.actions.items():
            yield f"### {TITLES[group]}\n"
            yield "| action | methods | the tester chain beside anvil |"
            yield "|---|---|---|"
            for ours, theirs in pairs:
                methods = ", ".join(f"`{name}`" for name in sorted(ours["methods"]))
                yield f"| {ours['action']} | {methods} | {difference(ours, theirs)} |"
            yield ""

    def _method_table(self) -> Iterator[str]:
        yield "### All methods\n"
        yield "| method | tester chain | anvil |"
        yield "|---|---|---|"
        for name, answers in sorted(self.known.items()):
            ours, theirs = ("yes" if knows else "no" for knows in answers)
            yield f"| `{name}` | {ours} | {theirs} |"


async def compared() -> Comparison:
    await install()
    async with _chains() as (ours, theirs):
        actions = await _actions(ours, theirs)
    methods = {name for pairs in actions.values() for pair in pairs for name in _methods(pair)}
    # eth-tester's own names would be no help: anvil's and ltzd's are the ones that clients call.
    names = sorted({*METHODS, *_SUBSCRIPTIONS, *ANVIL_METHODS, *methods})
    async with _chains() as (ours, theirs):
        ours_known, theirs_known = await asyncio.gather(_known(ours, names), _known(theirs, names))
    known = {name: (name in ours_known, name in theirs_known) for name in names}
    return Comparison(actions, {name: both for name, both in known.items() if any(both)})


async def _actions(ours: str, theirs: str) -> dict[str, list[Pair]]:
    first, second = await asyncio.gather(_outcomes(ours), _outcomes(theirs))
    return {group: list(zip(first[group], second[group], strict=True)) for group in TITLES}


async def _outcomes(url: str) -> dict[str, list[Outcome]]:
    """viem comes last, since its actions change the chain's settings."""
    return {
        "web3": await web3_outcomes(url),
        "ethers": await answers_of("ethers.mjs", url),
        "web3js": await answers_of("web3js.mjs", url),
        "cast": await cast_outcomes(url),
        **await answers_of("viem.mjs", url),
    }


def difference(ours: Outcome, theirs: Outcome) -> str:
    """Both outcomes in words; "same" if both chains answer alike."""
    if ours.get("refusal") == theirs.get("refusal"):
        if "refusal" in ours:
            return f"same: {ours['refusal']}"
        return "; ".join(_shape_differences(ours["shape"], theirs["shape"])) or "same"
    words = [
        f"{name} {outcome.get('refusal', 'answers')}" for name, outcome in _named(ours, theirs)
    ]
    return ", ".join(words)


def _named(ours: Outcome, theirs: Outcome) -> Iterable[tuple[str, Outcome]]:
    return ("tester", ours), ("anvil", theirs)


def _shape_differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            at = f"{path}.{name}".lstrip(".")
            if name not in ours:
                yield f"no `{at}`"
            elif name not in theirs:
                yield f"also `{at}`"
            else:
                yield from _shape_differences(ours[name], theirs[name], at)
    elif isinstance(ours, list) and isinstance(theirs, list) and ours and theirs:
        yield from _shape_differences(ours[0], theirs[0], path)
    elif ours != theirs:
        yield f"`{path or 'answer'}`: {_kind(ours)}, anvil {_kind(theirs)}"


def _kind(shape: Any) -> str:
    if isinstance(shape, dict):
        return "object"
    return ("list" if shape else "empty list") if isinstance(shape, list) else str(shape)


def _methods(pair: Pair) -> set[str]:
    return {name for outcome in pair for name in outcome["methods"]}


async def _known(url: str, names: list[str]) -> set[str]:
    """The parameters suit no method, so that nothing but the name's refusal counts."""
    calls = [
        {"jsonrpc": "2.0", "id": number, "method": name, "params": [{}] * 9}
        for number, name in enumerate(names)
    ]
    async with aiohttp.ClientSession() as http:
        async with http.post(url, json=calls) as response:
            replies = {reply["id"]: reply for reply in await response.json()}
        known = {
            name
            for number, name in enumerate(names)
            if replies[number].get("error", {}).get("code") != METHOD_NOT_FOUND
        }
        # Subscriptions exist over WebSockets alone.
        async with http.ws_connect(url) as socket:
            call = {"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["newHeads"]}
            await socket.send_json(call)
            if "result" in await socket.receive_json(timeout=30):
                known |= set(_SUBSCRIPTIONS)
    return known


@asynccontextmanager
async def _chains() -> AsyncIterator[tuple[str, str]]:
    kinds: tuple[Kind, Kind] = ("tester", "anvil")
    async with a_chain(kinds[0]) as ours, a_chain(kinds[1]) as theirs:
        yield ours.rpc_url, theirs.rpc_url


async def _write() -> None:
    comparison = await compared()
    PAGE.write_text(comparison.page(PAGE.read_text()))


if __name__ == "__main__":
    asyncio.run(_write())
