"""`ltzd user erase`: erases one user's e-mail address, names and links, and says what stays.

Each step may be repeated, and an interrupted erasure is finished by the next one: the address is
hidden first, and the user is found by it all the same.
"""

import asyncio
import sys
from typing import Final

import asyncpg
import typer

from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.user.lookup import find_person
from ltzd.daemon.checks.database import require_master_key
from ltzd.errors import Refused
from ltzd.store.database import Connection
from ltzd.store.retention import erasure
from ltzd.store.retention.dossier import Person
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.values import checksummed

_TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.5

STAYS: Final = {
    "wallet": "the wallet and its transfers: they are on the chain, which keeps them for ever",
    "amounts": "rewards, payments and redemptions, by wallet: the books need their amounts",
    "events": "brand, type, amount and time of events: the limits of claims count them",
    "hash": "a keyed hash of the address: the same address finds this wallet and these limits",
    "accounts": "ids of OAuth accounts that lead to the wallet: they are how its owner returns",
    "elsewhere": "copies at the identity provider, the payment provider and the brands, in "
    "backups and in log files: erase them there",
}


def erase(target: Target, user: str, *, is_confirmed: bool, as_json: bool) -> None:
    changed = asyncio.run(_erase(target, user, is_confirmed=is_confirmed))
    if as_json:
        print_json({"erased": changed, "stays": STAYS})
        return
    for name, count in changed.items():
        print(f"{name}: {count}")
    print_message("These stay:")
    for reason in STAYS.values():
        print_message(f"- {reason}.")


async def _erase(target: Target, user: str, *, is_confirmed: bool) -> dict[str, int]:
    sealer = target.sealer()
    erased = ErasedAddresses(sealer)
    async with open_connection(target, "user erase") as connection:
        # The first erasure seals a secret that every process must open from then on.
        await require_master_key(connection, sealer)
        person = await find_person(connection, erased, user)
        if not is_confirmed:
            _confirm(person)
        return await erase_person(connection, erased, person)


def _confirm(person: Person) -> None:
    """Raises Refused."""
    if not sys.stdin.isatty():
        raise Refused(
            f"{_question(person)} Standard input is no terminal, so give --yes to confirm. Nothing "
            "changed."
        )
    if not typer.confirm(_question(person), err=True):
        raise Refused("Not confirmed: nothing changed.")


async def erase_person(
    connection: Connection, erased: ErasedAddresses, person: Person
) -> dict[str, int]:
    """How many rows of each kind were changed. Raises Refused if the writers of events are busy."""
    hidden = await _hide(connection, erased, person)
    if person.user_id is not None:
        await erasure.record(connection, person.user_id)
    counts = {
        "address": hidden.users,
        "claims": hidden.claims,
        "proofs of the address": hidden.proofs,
        "custodial accounts": hidden.accounts,
        "links given to sites": await erasure.end_links(connection, person.subjects),
        "account names": await erasure.clear_account_names(connection, person.wallets),
    }
    if person.user_id is not None:
        await erasure.hide_members(connection, erased, [person.user_id])
        counts["memberships at sites"] = await erasure.end_memberships(connection, person.user_id)
        counts["events"] = await erasure.clear_events(connection, person.user_id)
    return counts


async def _hide(
    connection: Connection, erased: ErasedAddresses, person: Person
) -> erasure.ErasedRows:
    for _ in range(_TRIES):
        try:
            return await erasure.hide_addresses(connection, erased, person.email_keys)
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(_PAUSE_SECONDS)
    raise Refused(
        "Events are being written all the time, so the address could not be erased: look for a "
        "long statement in pg_stat_activity, and repeat the command. Nothing changed."
    )


def _question(person: Person) -> str:
    named = [str(person.user_id or ""), *map(checksummed, person.wallets), *person.subjects]
    name = next(filter(None, named))
    return f"Erase the e-mail address and the names of user {name}? This cannot be undone."
