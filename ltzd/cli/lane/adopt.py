"""`ltzd lane adopt`: lets a lane continue behind all that its wallet has signed elsewhere."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ltzd.cli.command_node import answering_nodes
from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.wallet.lookup import parse_address
from ltzd.errors import Misconfigured, Refused
from ltzd.operator import restoring
from ltzd.operator.restoring import WalletComparison
from ltzd.store.database import Connection
from ltzd.store.operator import wallets
from ltzd.store.operator.wallets import WalletState
from ltzd.values import Address, checksummed, iso


class Adoption(msgspec.Struct, frozen=True):
    """`is_confirmed` skips the question; the wallet is watched for `watch_seconds` after it."""

    wallet: str
    kind: str | None
    is_confirmed: bool
    watch_seconds: float

    def address(self) -> Address:
        """Raises Misconfigured."""
        return parse_address(self.wallet)


def adopt(target: Target, urls: Sequence[str], adoption: Adoption, *, as_json: bool) -> None:
    """Raises Refused, and changes nothing, if the wallet is in use or needs no adoption."""
    done = asyncio.run(_adopt(target, urls, adoption))
    if as_json:
        print_json(done)
    else:
        print(*_lines(done), sep="\n", flush=True)


async def _adopt(target: Target, urls: Sequence[str], adoption: Adoption) -> dict[str, Any]:
    wallet = adoption.address()
    async with open_connection(target, "lane adopt") as connection:
        chain = await restoring.followed_chain(connection)
        await _refuse_retired(connection, chain.chain_id, wallet)
        async with answering_nodes(urls, chain.chain_id, chain.genesis_hash) as answering:
            for fault in answering.faults:
                print_message(f"Not given: {fault}")
            nodes = answering.nodes
            _, first = await restoring.compare_wallet(connection, nodes, wallet, answering.silent)
            kind = await _kind(connection, chain.chain_id, first, adoption.kind)
            if first.record is not None and not first.must_resume:
                raise Refused(
                    f"The database knows all that {checksummed(wallet)} has signed: nothing to "
                    "adopt, and nothing changed."
                )
            # Before the watch: a person may think for minutes, in which the wallet may sign.
            _confirm(first, kind, is_confirmed=adoption.is_confirmed)
            await asyncio.sleep(adoption.watch_seconds)
            _, lane = await restoring.compare_wallet(connection, nodes, wallet, answering.silent)
            if lane.nonce != first.nonce:
                raise Refused(
                    f"{checksummed(wallet)} has just signed again (nonce {lane.nonce - 1}): stop "
                    "the other program first. Nothing changed."
                )
            raised_to = await restoring.adopt(connection, nodes, chain, lane, kind)
            await wallets.add(connection, chain.chain_id, wallet, kind)
    return {
        "wallet": checksummed(wallet),
        "kind": kind,
        "wasKnown": lane.record is not None,
        "nonce": lane.nonce,
        "referencesFrom": raised_to,
    }


async def _refuse_retired(connection: Connection, chain_id: int, wallet: Address) -> None:
    """Raises Refused for a wallet that signs nothing any more, whatever its nonces are."""
    row = await wallets.find(connection, chain_id, wallet)
    if row is not None and row.state is WalletState.RETIRED:
        raise Refused(
            f"{checksummed(wallet)} was retired at {iso(row.state_since)}, and ltzd signs nothing "
            "with it: no lane of it can continue. Nothing changed."
        )


async def _kind(
    connection: Connection, chain_id: int, lane: WalletComparison, given: str | None
) -> str:
    """The lane's kind; of an unknown wallet the registry's, or the one of `--kind`."""
    row = await wallets.find(connection, chain_id, lane.wallet)
    known = lane.record.kind if lane.record is not None else (row and row.kind)
    if known is None and given is None:
        raise Misconfigured(
            f"This database has not seen {checksummed(lane.wallet)} yet: start ltzd with its key, "
            "or give --kind."
        )
    if known is not None and given is not None and given != known:
        raise Misconfigured(f"{checksummed(lane.wallet)} is a {known} wallet here, not {given}.")
    kind = known or given
    assert kind is not None
    return kind


def _confirm(lane: WalletComparison, kind: str, *, is_confirmed: bool) -> None:
    """Ask whether nothing else uses the wallet. Raises Refused."""
    if is_confirmed:
        return
    used = max(history.used for history in lane.histories)
    print_message(
        f"The {kind} wallet {checksummed(lane.wallet)} has used {used} nonces on chain, and the "
        f"next free one is {lane.nonce}."
    )
    print_message(
        "If another ltzd or another program still signs with its key, both will fail: stop it for "
        "good first. What it has accepted stays in its own database."
    )
    if not sys.stdin.isatty():
        raise Refused("Give --yes to confirm that nothing else uses the wallet. Nothing changed.")
    print("Does nothing else use the wallet? Type yes: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise Refused("Not confirmed: nothing changed.")


def _lines(done: dict[str, Any]) -> Iterator[str]:
    yield (
        f"The {done['kind']} wallet {done['wallet']} is adopted: its lane continues at nonce "
        f"{done['nonce']}."
    )
    if done["referencesFrom"] is not None:
        yield f"References continue at {done['referencesFrom']}."
    yield (
        "The lane signs once all nonces below are used on chain, the index has read the blocks of "
        "that moment, and ten seconds have passed; nothing needs a restart."
    )
    if done["kind"] == "mint":
        yield "If rewards remain whose references are used, run `ltzd restore check`."
