"""`ltzd wallets rotate-master-key`: encrypts every sealed row with another master key.

Running processes must know the new key before the first row is sealed with it, so the command
refuses a key that the settings do not name.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import Misconfigured
from ltzd.store.encryption import rotation as master_key_rotation
from ltzd.store.encryption.rotation import Count
from ltzd.store.encryption.sealing import Sealer


def rotate(target: Target, new_key_file: Path, *, as_json: bool) -> None:
    """Print the sealed rows of each table. Raises Misconfigured for rows that stay as they are."""
    known, key_id = target.sealer(), Sealer.from_file(new_key_file).key_id
    if key_id not in known.key_ids:
        raise Misconfigured(_unknown(target, new_key_file))
    counts = asyncio.run(_rotate(target, known.sealing_with(key_id)))
    if as_json:
        rows = {name: {"rows": c.rows, "resealed": c.resealed} for name, c in counts.items()}
        print_json({"keyId": key_id, "tables": rows})
    else:
        for name, count in counts.items():
            resealed = f"{count.resealed} of them sealed again"
            print(f"{name}: {count.rows} sealed rows, {resealed}", flush=True)
    _refuse_faults(counts)
    print_message(f"Every row can be opened with master key {key_id} alone.")
    print_message(_next_step(target, is_in_use=known.key_id == key_id))


async def _rotate(target: Target, sealer: Sealer) -> dict[str, Count]:
    async with open_connection(target, "wallets rotate-master-key") as connection:
        return await master_key_rotation.rotate(connection, sealer)


def _unknown(target: Target, new_key_file: Path) -> str:
    if target.data_dir is not None:
        return (
            f"Make the key of {new_key_file} the first line of {target.master_key_file}, above the "
            "old one, and restart `ltzd dev`: without it ltzd could not read the new rows."
        )
    return (
        f"The settings do not name the key of {new_key_file}: make it master_key_file, add the old "
        "file to old_master_key_files, restart every process, and repeat the command."
    )


def _refuse_faults(counts: Mapping[str, Count]) -> None:
    faults = [fault for count in counts.values() for fault in count.faults]
    if faults:
        raise Misconfigured(
            " ".join(["Some rows were not changed; keep the old key.", *dict.fromkeys(faults)])
        )


def _next_step(target: Target, *, is_in_use: bool) -> str:
    if target.data_dir is not None:
        return f"The other lines of {target.master_key_file} can be deleted now."
    if is_in_use:
        return "old_master_key_files can be removed now; keep the old key as long as older backups."
    return "Now make the new file master_key_file everywhere, and repeat the command."
