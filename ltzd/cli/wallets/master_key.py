"""`ltzd wallets rotate-master-key`: everything that is sealed, under another master key.

The processes that run must know the new key before the first row is sealed with it, so it is
refused until the settings name it.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from ltzd.cli.output import tell
from ltzd.cli.targets import Place, connected
from ltzd.errors import Misconfigured
from ltzd.store.encryption import rotation as master_key_rotation
from ltzd.store.encryption.rotation import Count
from ltzd.store.encryption.sealing import Sealer


def rotate(place: Place, new_key_file: Path) -> None:
    known, key_id = place.sealer(), Sealer.from_file(new_key_file).key_id
    if key_id not in known.key_ids:
        raise Misconfigured(_unknown(place, new_key_file))
    counts = asyncio.run(_rotate(place, known.sealing_with(key_id)))
    for name, count in counts.items():
        print(f"{name}: {count.rows} sealed rows, {count.resealed} of them anew", flush=True)
    _refuse_faults(counts)
    tell(f"Every row opens with master key {key_id} alone.")
    tell(_next_step(place, is_in_use=known.key_id == key_id))


async def _rotate(place: Place, sealer: Sealer) -> dict[str, Count]:
    async with connected(place, "wallets rotate-master-key") as connection:
        return await master_key_rotation.rotate(connection, sealer)


def _unknown(place: Place, new_key_file: Path) -> str:
    if place.data_dir is not None:
        return (
            f"Make the key of {new_key_file} the first line of {place.master_key_file}, above the "
            "old one, and start `ltzd dev` again: else it could not read what is sealed anew."
        )
    return (
        f"No process knows the key of {new_key_file} yet: make it master_key_file, put the old "
        "file into old_master_key_files, restart every process, and run this again."
    )


def _refuse_faults(counts: Mapping[str, Count]) -> None:
    faults = [fault for count in counts.values() for fault in count.faults]
    if faults:
        raise Misconfigured(
            "\n".join(["Some rows are as they were; keep the old key.", *dict.fromkeys(faults)])
        )


def _next_step(place: Place, *, is_in_use: bool) -> str:
    if place.data_dir is not None:
        return f"Now {place.master_key_file} may do without its other lines."
    if is_in_use:
        return "Now old_master_key_files may go; keep the old key as long as backups from before."
    return "Now make the new file master_key_file everywhere, and run this once more."
