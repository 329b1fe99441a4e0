"""Finds the user that a command's argument names."""

from uuid import UUID

from ltzd.errors import NotFound
from ltzd.store.database import Connection
from ltzd.store.retention import dossier
from ltzd.store.retention.dossier import Person
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.values import Address, address_of


async def find_person(connection: Connection, erased: ErasedAddresses, text: str) -> Person:
    """Raises NotFound, also if several addresses lead to the wallet."""
    people = await dossier.find(connection, erased, _name(text))
    if not people:
        raise NotFound(f"There is no user {text}.")
    if len(people) > 1:
        ids = ", ".join(str(person.user_id) for person in people)
        raise NotFound(f"Several addresses lead to this wallet; name one of the users: {ids}.")
    return people[0]


def _name(text: str) -> str | UUID | Address:
    if "@" in text:
        return text.strip()
    try:
        return address_of(text) if text.startswith("0x") else UUID(text)
    except ValueError:
        raise NotFound(
            f"{text!r} is no e-mail address, no user id (a UUID) and no wallet (0x…)."
        ) from None
