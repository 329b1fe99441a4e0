"""Computes which cores, machines, wallets and gas a load needs, from the recorded benchmarks.

`python -m benchmarks.scale_model` reads `results/*.json`, writes the costs to
`results/scale-model.json` and the generated part of docs/scale.md. The model is linear: a load's
need is the sum of its requests' costs. `CHECKS` compares its predictions with measured rates.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.harness.results import FOLDER

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN = "<!-- model: written by `python -m benchmarks.scale_model` -->\n"
END = "<!-- model: end -->\n"
SNAPSHOT = FOLDER / "scale-model.json"

BUSY: Final = 0.6
"""The share of a core that is planned with: the rest is for peaks and takeovers."""
MACHINE_CORES: Final = 16
DATABASE_CORES: Final = 32
DATABASE_WAL_MEGABYTES: Final = 100
"""A second: one PostgreSQL's log that a synchronous standby and an archive follow with ease."""
LANE_SHARE: Final = 0.5
"""The share of a mint wallet's measured rate that is planned with."""
RELAYS_IN_FLIGHT: Final = 16
"""Of one relay wallet in one block, on chains and at nodes that take few pending ones."""
CHAIN_SHARE: Final = 0.5
"""The share of a chain's gas that one application may count on."""


@dataclass(frozen=True, slots=True)
class Load:
    """Per second. Each event earns a reward, and is announced by a webhook once it is minted."""

    events: float
    reads: float
    relays: float

    def times(self, factor: float) -> "Load":
        return Load(self.events * factor, self.reads * factor, self.relays * factor)


TODAY: Final = Load(events=2_000, reads=2_000, relays=200)
"""About the load that one machine of two cores was measured with, surface by surface."""


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU in microseconds, WAL in bytes, gas in gas, rates per second.

    `mint` is the work of operator and indexer for a reward beside events that go on; `relay` that
    of all roles for a relay; `fact` the indexer's for an event of the chain that it reads alone.
    """

    event_http: float
    event_postgres: float
    event_wal_bytes: float
    minted_wal_bytes: float
    relay_wal_bytes: float
    event_all_roles: float
    mint: float
    mint_postgres: float
    read_http: float
    read_postgres: float
    read_redis: float
    relay: float
    relay_postgres: float
    relay_node: float
    webhook: float
    fact: float
    lane_rewards_a_second: float
    reward_gas: float
    new_holder_gas: float


RELAY_GAS: Final = 65_900
"""`transferWithAuthorization` to an existing holder (docs/contracts.md)."""


def _details(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["details"]


def _median(name: str, of: Callable[[Any], float]) -> float:
    return median(of(round_) for round_ in _details(name)["rounds"])


def measured_costs() -> Costs:
    """The costs of the last recorded benchmarks."""
    recorded = _median("bulk", lambda round_: _cpu(round_["recorded"], "ltzd"))
    recorded_postgres = _median("bulk", lambda round_: _cpu(round_["recorded"], "postgres"))
    minted = _median("bulk", lambda round_: _cpu(round_["minted"], "ltzd"))
    minted_postgres = _median("bulk", lambda round_: _cpu(round_["minted"], "postgres"))
    delivered = _median("webhooks", lambda round_: round_["delivered"]["per_second"])
    backfill = _details("backfill")
    gas = _details("gas")["batched"]
    return Costs(
        event_http=_median("http-scale", lambda round_: round_["events"]["two"]["cpu"]["http"]),
        event_postgres=recorded_postgres,
        event_wal_bytes=_median("wal", lambda round_: round_["recorded"]["wal_bytes"]),
        minted_wal_bytes=_median("wal", lambda round_: round_["minted"]["wal_bytes"]),
        relay_wal_bytes=_median("wal", lambda round_: round_["relayed"]["wal_bytes"]),
        event_all_roles=recorded,
        mint=minted - recorded,
        mint_postgres=minted_postgres - recorded_postgres,
        read_http=_median("http-scale", lambda round_: round_["reads"]["two"]["cpu"]["http"]),
        read_postgres=_median("http-scale", lambda r: r["reads"]["two"]["cpu"]["postgres"]),
        read_redis=_median("http-scale", lambda round_: round_["reads"]["two"]["cpu"]["redis"]),
        relay=_median("relays", lambda r: r["many"]["cpu_microseconds_per_relay"]["ltzd"]),
        relay_postgres=_median(
            "relays", lambda r: r["many"]["cpu_microseconds_per_relay"]["postgres"]
        ),
        relay_node=_median("relays", lambda r: r["many"]["cpu_microseconds_per_relay"]["anvil"]),
        webhook=1e6 / delivered,
        fact=1e6
        * median(round_["ours"]["cpu_seconds"] for round_ in backfill["rounds"])
        / backfill["transfers"],
        lane_rewards_a_second=_median("mint-fleet", lambda r: r["single"]["per_second"]),
        reward_gas=gas["existing"]["gas_per_reward"],
        new_holder_gas=gas["new"]["gas_per_reward"],
    )


def _cpu(side: Any, program: str) -> float:
    return float(side["cpu_microseconds_per_event"][program])


@dataclass(frozen=True, slots=True)
class Check:
    """A rate that the model predicts from the costs, and the rate of another measurement."""

    name: str
    limit: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted


def checks(costs: Costs) -> list[Check]:
    share = float(_details("http-scale")["share_of_a_core"])
    all_roles = costs.event_all_roles + costs.mint
    relay_cpu = costs.relay + costs.relay_postgres + costs.relay_node
    return [
        Check(
            "events and their mints, one process of all roles, a minute",
            "one core of ltzd",
            1e6 / all_roles,
            float(_details("minting")["load"]["per_second"]),
        ),
        Check(
            "durable events, one process of all roles",
            "one core of ltzd",
            1e6 / costs.event_all_roles,
            _median("intake", lambda round_: round_["recorded"]["per_second"]),
        ),
        Check(
            "durable events, two http processes",
            f"{2 * share:.0%} of a core",
            2e6 * share / costs.event_http,
            _median("http-scale", lambda round_: round_["events"]["two"]["per_second"]),
        ),
        Check(
            "signed reads, two http processes",
            f"{2 * share:.0%} of a core",
            2e6 * share / costs.read_http,
            _median("http-scale", lambda round_: round_["reads"]["two"]["per_second"]),
        ),
        Check(
            "relays, 4,000 in flight",
            "two cores for ltzd, PostgreSQL and the node",
            2e6 / relay_cpu,
            _median("relays", lambda round_: round_["many"]["load"]["per_second"]),
        ),
    ]


@dataclass(frozen=True, slots=True)
class Need:
    """Cores are at BUSY of each; processes are those of one core."""

    http_cores: float
    operator_cores: float
    delivery_cores: float
    postgres_cores: float
    redis_cores: float
    wal_megabytes: float
    mint_wallets: int
    relay_wallets: int
    gas: float

    @property
    def machines(self) -> int:
        cores = self.http_cores + self.operator_cores + self.delivery_cores + self.redis_cores
        return math.ceil(cores / MACHINE_CORES)

    @property
    def database_shards(self) -> int:
        by_log = self.wal_megabytes / DATABASE_WAL_MEGABYTES
        return math.ceil(max(self.postgres_cores / DATABASE_CORES, by_log))


def need(load: Load, costs: Costs, block_seconds: float = 1.0) -> Need:
    """Half of a relay's work is the http role's, half the operator's and the indexer's."""
    relays_http = load.relays * costs.relay / 2
    http = load.events * costs.event_http + load.reads * costs.read_http + relays_http
    postgres = (
        load.events * (costs.event_postgres + costs.mint_postgres)
        + load.reads * costs.read_postgres
        + load.relays * costs.relay_postgres
    )
    return Need(
        http_cores=_cores(http),
        operator_cores=_cores(load.events * costs.mint + relays_http),
        delivery_cores=_cores(load.events * costs.webhook),
        postgres_cores=_cores(postgres),
        redis_cores=_cores(load.reads * costs.read_redis),
        wal_megabytes=(load.events * costs.minted_wal_bytes + load.relays * costs.relay_wal_bytes)
        / 1e6,
        mint_wallets=math.ceil(load.events / (LANE_SHARE * costs.lane_rewards_a_second)),
        relay_wallets=math.ceil(load.relays * block_seconds / RELAYS_IN_FLIGHT),
        gas=load.events * costs.reward_gas + load.relays * RELAY_GAS,
    )


def _cores(microseconds_a_second: float) -> float:
    return microseconds_a_second / 1e6 / BUSY


@dataclass(frozen=True, slots=True)
class Chain:
    """`gas_a_second` is the block's gas limit by its time. Both are parameters of a network that
    change: `eth_getBlockByNumber` tells the limit of today.
    """

    name: str
    block_gas: float
    block_seconds: float

    @property
    def gas_a_second(self) -> float:
        return self.block_gas / self.block_seconds


CHAINS: Final = (
    Chain("60 M gas in 12 s, as Ethereum", 60e6, 12.0),
    Chain("45 M gas in 2 s, as a sidechain", 45e6, 2.0),
    Chain("150 M gas in 2 s, as a large rollup", 150e6, 2.0),
    Chain("300 M gas in 1 s, a rollup or chain of one's own", 300e6, 1.0),
)


def render(costs: Costs, checked: Sequence[Check]) -> str:
    """The generated part of the page, between its marks."""
    parts = [
        _table(("cost", "measured"), _cost_rows(costs)),
        "The model's predictions beside rates that other runs measured:",
        _table(
            ("rate", "what limits it", "predicted", "measured", "measured ÷ predicted"),
            [
                (
                    check.name,
                    check.limit,
                    f"{check.predicted:,.0f} a second",
                    f"{check.measured:,.0f} a second",
                    f"{check.ratio:.2f}",
                )
                for check in checked
            ],
        ),
        "The needs of a load:",
        _table(("", "today", "10 times", "100 times"), _need_rows(costs)),
        f"Chains that carry a load, with {CHAIN_SHARE:.0%} of their gas:",
        _table(
            (
                "chain",
                "gas a second",
                "rewards a second",
                "relays a second",
                "chains for 100 times today",
            ),
            _chain_rows(costs),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _cost_rows(costs: Costs) -> list[tuple[str, str]]:
    mint_wal_bytes = costs.minted_wal_bytes - costs.event_wal_bytes
    relay = f"{costs.relay:.0f}, {costs.relay_postgres:.0f}, {costs.relay_node:.0f} µs"
    return [
        ("an event, the http role", f"{costs.event_http:.0f} µs"),
        (
            "an event, PostgreSQL",
            f"{costs.event_postgres:.0f} µs, {costs.event_wal_bytes:,.0f} bytes of WAL",
        ),
        ("its mint, operator and indexer", f"{costs.mint:.0f} µs"),
        (
            "its mint, PostgreSQL",
            f"{costs.mint_postgres:.0f} µs, {mint_wal_bytes:,.0f} bytes of WAL",
        ),
        ("its webhook, at most", f"{costs.webhook:.0f} µs"),
        (
            "a signed read: http, PostgreSQL, Redis",
            f"{costs.read_http:.0f}, {costs.read_postgres:.0f}, {costs.read_redis:.0f} µs",
        ),
        (
            "a relay: all roles, PostgreSQL, node",
            f"{relay}; {costs.relay_wal_bytes:,.0f} bytes of WAL",
        ),
        ("a fact of a backfill", f"{costs.fact:.0f} µs"),
        ("rewards of one mint wallet", f"{costs.lane_rewards_a_second:,.0f} a second"),
        (
            "gas of a reward in a batch of 100, existing and new holders",
            f"{costs.reward_gas:,.0f} and {costs.new_holder_gas:,.0f}",
        ),
    ]


def _need_rows(costs: Costs) -> list[tuple[str, ...]]:
    loads = [TODAY.times(factor) for factor in (1, 10, 100)]
    needs = [need(load, costs) for load in loads]
    database = f"PostgreSQL: cores, databases of {DATABASE_CORES}"
    database += f" (or {DATABASE_WAL_MEGABYTES} MB of WAL a second)"
    return [
        (
            "events, reads, relays a second",
            *(f"{load.events:,.0f}, {load.reads:,.0f}, {load.relays:,.0f}" for load in loads),
        ),
        (
            "processes of `http`, one core each",
            *(f"{math.ceil(each.http_cores):,}" for each in needs),
        ),
        (
            "processes of `operator` and `indexer`",
            *(f"{math.ceil(each.operator_cores):,}" for each in needs),
        ),
        ("processes of `deliveries`", *(f"{math.ceil(each.delivery_cores):,}" for each in needs)),
        (
            f"machines of {MACHINE_CORES} cores for them and Redis",
            *(f"{each.machines:,}" for each in needs),
        ),
        (
            database,
            *(f"{math.ceil(each.postgres_cores):,}, {each.database_shards}" for each in needs),
        ),
        (
            "WAL of events, mints and relays",
            *(f"{each.wal_megabytes:,.1f} MB a second" for each in needs),
        ),
        ("mint wallets", *(f"{each.mint_wallets:,}" for each in needs)),
        (
            f"relay wallets, {RELAYS_IN_FLIGHT} in a block of a second",
            *(f"{each.relay_wallets:,}" for each in needs),
        ),
        ("gas a second", *(f"{each.gas / 1e6:,.0f} M" for each in needs)),
    ]


def _chain_rows(costs: Costs) -> list[tuple[str, ...]]:
    wanted = need(TODAY.times(100), costs).gas
    return [
        (
            chain.name,
            f"{chain.gas_a_second / 1e6:,.1f} M",
            f"{CHAIN_SHARE * chain.gas_a_second / costs.reward_gas:,.0f}",
            f"{CHAIN_SHARE * chain.gas_a_second / RELAY_GAS:,.0f}",
            f"{math.ceil(wanted / (CHAIN_SHARE * chain.gas_a_second)):,}",
        )
        for chain in CHAINS
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|"
        for line in lines
    )


def main() -> None:
    costs = measured_costs()
    checked = checks(costs)
    content = {"costs": asdict(costs), "checks": [asdict(check) for check in checked]}
    SNAPSHOT.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    part = render(costs, checked)
    PAGE.write_text(f"{before}{BEGIN}{part}{END}{after}", encoding="utf-8")
    print(part)


if __name__ == "__main__":
    main()
