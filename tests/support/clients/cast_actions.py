"""cast's commands on a chain: for each the fields of its answer, without values.

The outcomes have the form of `tests/clients/viem.mjs`. cast does not tell which methods it calls.
"""

import asyncio
import json
from asyncio.subprocess import PIPE
from typing import Any

from tests.support.chain.tester import EMITTER, topic, word
from tests.support.clients.programs import ROOT
from tests.support.clients.web3_actions import SOMEBODY, Outcome, shape_of

CAST = ROOT / "contracts" / "node_modules" / "@foundry-rs" / "cast-linux-amd64" / "bin" / "cast"
KEY = "0x" + "c5" * 32


class CastFailedError(Exception):
    pass


async def cast_outcomes(url: str) -> list[Outcome]:
    account = json.loads(await _cast(url, "rpc", "eth_accounts"))[0]
    unlocked = ("--unlocked", "--from", account, "--json")
    created = json.loads(await _cast(url, "send", *unlocked, "--create", EMITTER))
    data = "0x" + word(1) + word(2)
    emitter = str(created["contractAddress"])
    sent = json.loads(await _cast(url, "send", *unlocked, emitter, data))["transactionHash"]
    wallet = (await _cast(url, "wallet", "address", KEY)).strip()
    await _cast(url, "rpc", "anvil_setBalance", wallet, hex(10**18))
    commands: dict[str, tuple[str, ...]] = {
        "chain-id": (),
        "client": (),
        "block-number": (),
        "gas-price": (),
        "base-fee": (),
        "age": (),
        "block": ("latest", "--json"),
        "balance": (account,),
        "nonce": (account,),
        "code": (emitter,),
        "storage": (emitter, "0"),
        "proof": (emitter, topic(0)),
        "tx": (sent, "--json"),
        "receipt": (sent, "--json"),
        "logs": ("--address", emitter, "--from-block", "0", "--json"),
        "call": (emitter, "--data", data),
        "estimate": (emitter, data, "--from", account),
        "access-list": (emitter, data, "--from", account, "--json"),
        "send (unlocked)": (*unlocked, emitter, data),
        "send (private key)": ("--private-key", KEY, "--json", SOMEBODY, "--value", "1"),
        "rpc": ("evm_mine",),
    }
    return [await _outcome(url, name, options) for name, options in commands.items()]


async def _outcome(url: str, action: str, options: tuple[str, ...]) -> Outcome:
    outcome: Outcome = {"action": action, "methods": []}
    try:
        outcome["shape"] = _shape(await _cast(url, action.partition(" ")[0], *options))
    except CastFailedError:
        outcome["refusal"] = "fails"
    return outcome


def _shape(output: str) -> Any:
    try:
        return shape_of(json.loads(output))
    except ValueError:
        return "text"


async def _cast(url: str, command: str, *options: str) -> str:
    local = ("wallet",)
    target = () if command in local else ("--rpc-url", url)
    process = await asyncio.create_subprocess_exec(
        str(CAST), command, *target, *options, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise CastFailedError(f"cast {command}: {errors.decode()}")
    return output.decode()
