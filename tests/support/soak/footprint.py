"""The memory, files, tasks and sessions of PostgreSQL that a running process holds."""

import asyncio
import re
from dataclasses import dataclass
from statistics import median

import psutil

from tests.support.cluster.cluster import Cluster, Member

_SAMPLES = 10
_SAMPLE_SECONDS = 0.5
_TASKS = re.compile(r"^ltzd_daemon_tasks (\S+)$", re.MULTILINE)
MOST_GROWTH = 1.05


@dataclass(frozen=True)
class Footprint:
    """The medians of some seconds."""

    memory_mib: float
    files: float
    tasks: float
    sessions: float

    def grown_beyond(self, before: "Footprint") -> list[str]:
        """The parts that grew more than traffic explains: memory 5 %, others a tenth and ten."""
        grown = []
        if self.memory_mib > MOST_GROWTH * before.memory_mib:
            grown.append(f"memory: {before.memory_mib:.0f} → {self.memory_mib:.0f} MiB")
        for name in ("files", "tasks", "sessions"):
            was, now = getattr(before, name), getattr(self, name)
            if now > 1.1 * was + 10:
                grown.append(f"{name}: {was:.0f} → {now:.0f}")
        return grown


async def footprint(cluster: Cluster, member: Member) -> Footprint:
    process, instance = psutil.Process(member.pid), cluster.instance
    samples = []
    for _ in range(_SAMPLES):
        url = f"http://127.0.0.1:{member.admin_port}/metrics"
        async with instance.http.get(url) as reply:
            tasks = _TASKS.search(await reply.text())
        assert tasks is not None
        sessions = await instance.ask(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ltzd%'"
        )
        samples.append(
            (
                process.memory_info().rss / 2**20,
                process.num_fds(),
                float(tasks[1]),
                sessions,
            )
        )
        await asyncio.sleep(_SAMPLE_SECONDS)
    return Footprint(*(float(median(values)) for values in zip(*samples, strict=True)))
