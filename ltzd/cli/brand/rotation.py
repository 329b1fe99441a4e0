"""`ltzd brand rotate-key`: makes one new key and prints it once."""

import asyncio

from ltzd.cli.brand.lookup import describe_brand, find_brand
from ltzd.cli.output import print_keys, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.daemon.checks.database import require_master_key
from ltzd.errors import Misconfigured
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.keys import FIELDS, KeyName, Rotation
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import hex_of, iso, iso_or_none

_KEY_NAMES: dict[str, KeyName] = {
    text: name for name, field in FIELDS.items() for text in (name, field)
}
"""Every key by its name, and by its name in JSON."""


def rotate(
    target: Target,
    brand: str,
    key: str,
    *,
    revoke: bool,
    is_master_key_lost: bool,
    as_json: bool,
) -> None:
    """Print the new key as JSON; with `as_json` also what became of the previous key.

    Raises Misconfigured, and changes nothing, if the master key file does not open what the
    database holds, unless that master key is lost.
    """
    asyncio.run(
        _rotate(
            target,
            brand,
            _KEY_NAMES[key],
            revoke=revoke,
            is_master_key_lost=is_master_key_lost,
            as_json=as_json,
        )
    )


async def _rotate(
    target: Target,
    brand: str,
    key: KeyName,
    *,
    revoke: bool,
    is_master_key_lost: bool,
    as_json: bool,
) -> None:
    sealer = target.sealer()
    async with open_connection(target, "brand rotate-key") as connection:
        record = await find_brand(connection, brand)
        # An API key is kept as a hash, without the master key.
        if key != "api_key" and not is_master_key_lost:
            await _require_master_key(connection, sealer)
        rotation = await brand_keys.rotate(connection, record.id, key, sealer, revoke=revoke)
    # Printed after the commit: a key that is not in force must not be given away.
    shown = {"brandId": hex_of(record.id), FIELDS[key]: rotation.key}
    print_keys(shown | _fate_of_previous(rotation) if as_json else shown)
    print_message(
        f"{describe_brand(record)} has a new {key}, in force within a second. "
        f"{_end_of_old(rotation)}"
    )
    print_message("The key is shown only this once: store it.")
    if target.data_dir is not None:
        from ltzd.dev.demo import rotated_keys  # noqa: PLC0415 - only for a dev instance

        rotated_keys.keep(target.data_dir, shown)


async def _require_master_key(connection: Connection, sealer: Sealer) -> None:
    try:
        await require_master_key(connection, sealer)
    except Misconfigured as error:
        raise Misconfigured(
            f"{error.message} If that master key is lost for good, --master-key-lost replaces "
            "this key all the same. Nothing changed."
        ) from error


def _fate_of_previous(rotation: Rotation) -> dict[str, str | None]:
    until = rotation.previous_until
    return {
        "previousValidUntil": iso_or_none(until),
        "previousLost": rotation.lost,
    }


def _end_of_old(rotation: Rotation) -> str:
    if rotation.previous_until is not None:
        return f"The previous key remains valid until {iso(rotation.previous_until)}."
    if rotation.lost is not None:
        return f"The previous key is no longer valid: {rotation.lost}"
    return "All previous keys are revoked."
