"""Settings: one TOML file and `LTZD_` environment variables, checked whole before anything starts.

A variable wins over the file; its name is the key's path in capitals (`LTZD_HTTP__PORT`), lists are
comma-separated. Only this module reads the environment. Dev mode makes `Settings(...)` itself.
"""

import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from ltzd.daemon.settings.accounts import AccountSettings
from ltzd.daemon.settings.contracts import ContractSettings
from ltzd.daemon.settings.identity import IdentitySettings
from ltzd.daemon.settings.inline_secrets import inline_secrets
from ltzd.daemon.settings.listener import ListenerSettings
from ltzd.daemon.settings.log import LogSettings
from ltzd.daemon.settings.retention import RetentionSettings
from ltzd.daemon.settings.section import Section, resolve_secret, secret_from_file
from ltzd.daemon.settings.tracing import TracingSettings
from ltzd.daemon.settings.value_types import (
    ROLES,
    DatabaseUrl,
    IpAddresses,
    LevelsUrl,
    Networks,
    Origins,
    PathName,
    Port,
    RedisUrl,
    Roles,
    RpcUrl,
    RpcUrls,
    SecretFile,
    SecretFiles,
    SiteUrl,
    WebUrl,
    is_loopback,
    may_reach_this_machine,
)
from ltzd.daemon.settings.wallets import (
    NamedWallet,
    SignerSettings,
    TreasurySettings,
    WalletSettings,
)
from ltzd.errors import FileRejected, Misconfigured
from ltzd.rules.brands.toml_documents import FieldPath, TomlFile, dotted, reason_of
from ltzd.rules.database_connections import PoolPolicy
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.operator.top_ups import TopUpPolicy
from ltzd.rules.relayer.gas_budgets import GasBudgets
from ltzd.secret_files import read_checked
from ltzd.store.pooler import PoolerUrl

PREFIX = "LTZD_"
DEV_VARIABLE = "ANVIL"
"""LTZD_ANVIL is the path of dev mode's anvil; `ltzd run` ignores it."""


class NodeSettings(Section):
    """The nodes of the chain: `urls`, or `rpc_url` for a single one."""

    urls: RpcUrls | None = None
    rpc_url: RpcUrl | None = None
    chain_id: Annotated[int, Field(ge=1)] | None = None
    """A node of another chain is left out; without it, the database's chain counts."""
    poll_seconds: Annotated[float, Field(ge=0.05, le=60)] = 1.0
    final_depth: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Where nodes have no tag `finalized`: the depth from which a block is final."""
    final_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Where nodes have no tag `finalized`: how long ago a final block was first seen."""

    @model_validator(mode="after")
    def _has_nodes(self) -> Self:
        if (self.urls is None) == (self.rpc_url is None):
            raise ValueError(
                "give either urls, the nodes of the chain, or rpc_url for a single one"
            )
        if len({url.get_secret_value() for url in self.all_urls()}) < len(self.all_urls()):
            raise ValueError("urls names a node twice: a node cannot confirm itself")
        return self

    def all_urls(self) -> tuple[SecretStr, ...]:
        """At least one."""
        return self.urls or ((self.rpc_url,) if self.rpc_url is not None else ())

    def plain_urls(self) -> tuple[str, ...]:
        """The URLs with the secrets that they may hold."""
        return tuple(url.get_secret_value() for url in self.all_urls())


class DatabaseSettings(Section):
    """The ways to the database beside `database_url`, and the most connections of each role."""

    pooled_url: DatabaseUrl | None = None
    """The same database through a pooler in transaction mode, such as PgBouncer."""
    replica_url: DatabaseUrl | None = None
    """A streaming standby of the same database, for the reads that may be old."""
    replica_seconds: Annotated[float, Field(ge=2, le=3600)] = 10.0
    """No answer of the standby is older."""
    http_connections: Annotated[int, Field(ge=2, le=1000)] = 10
    operator_connections: Annotated[int, Field(ge=2, le=1000)] = 8
    indexer_connections: Annotated[int, Field(ge=2, le=100)] = 2
    deliveries_connections: Annotated[int, Field(ge=2, le=1000)] = 4
    http_wait_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5.0
    """How long an HTTP request waits for a free connection, before the answer 503."""

    def plain_pooled_url(self) -> PoolerUrl | None:
        """The URL with the password that it may hold."""
        if self.pooled_url is None:
            return None
        return PoolerUrl(self.pooled_url.get_secret_value())

    def plain_replica_url(self) -> str | None:
        """The URL with the password that it may hold."""
        return None if self.replica_url is None else self.replica_url.get_secret_value()

    def policy(self) -> PoolPolicy:
        return PoolPolicy(
            http=self.http_connections,
            operator=self.operator_connections,
            indexer=self.indexer_connections,
            deliveries=self.deliveries_connections,
            http_wait_seconds=self.http_wait_seconds,
        )


class HttpSettings(ListenerSettings):
    port: Port = 8000
    drain_seconds: Annotated[float, Field(ge=0, le=300)] = 5.0
    """Between SIGTERM, from which on `/readyz` says 503, and the end of the ports."""
    max_connections: Annotated[int, Field(ge=64, le=1_000_000)] = 16_384
    """Open connections; fewer if the limit of open files allows fewer."""
    own_origins: Origins = ()
    proxies_count: Annotated[int, Field(ge=0, le=16)] = 0
    """The largest number of reverse proxies that a request passes."""
    trusted_proxies: Networks = ()
    """The networks that contain these proxies and no other machine."""

    @model_validator(mode="after")
    def _has_both_proxy_settings_or_none(self) -> Self:
        if self.proxies_count and not self.trusted_proxies:
            raise ValueError("proxies_count has no effect without trusted_proxies: give both")
        if self.trusted_proxies and not self.proxies_count:
            raise ValueError("trusted_proxies has no effect without proxies_count: give both")
        return self

    @model_validator(mode="after")
    def _is_encrypted_or_explicitly_plain(self) -> Self:
        if self.serves_others_plainly and not self.plain_http:
            raise ValueError(
                "host is not a loopback address, so others could read plain HTTP: give "
                "tls_certificate_file and tls_key_file, or trusted_proxies and proxies_count if "
                "your proxies speak TLS, or plain_http = true"
            )
        return self

    @property
    def serves_others_plainly(self) -> bool:
        return self.is_open_to_others and not self.trusted_proxies


class AdminSettings(ListenerSettings):
    port: Port = 9464
    token_file: SecretFile | None = None

    @model_validator(mode="after")
    def _is_local_or_guarded(self) -> Self:
        faults = []
        if self.token_file is None and not is_loopback(self.host):
            faults.append("token_file is needed, since host is not a loopback address")
        if self.is_open_to_others and not self.plain_http:
            faults.append(
                "host is not a loopback address, so others could read the token: give "
                "tls_certificate_file and tls_key_file, or plain_http = true"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def token(self) -> SecretStr | None:
        return None if self.token_file is None else secret_from_file(self.token_file)


class OperatorSettings(Section):
    minter_key_file: SecretFile | None = None
    minter_password_file: SecretFile | None = None
    relay_key_file: SecretFile | None = None
    relay_password_file: SecretFile | None = None
    wallets: tuple[WalletSettings, ...] | None = None
    """More wallets, any number of each kind. Once given, the key files above are optional."""
    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 64
    max_fee_gwei: Annotated[Decimal, Field(gt=0, le=100)] = Decimal(100)
    """Spec 8: no transaction is sent with a fee above 100 gwei."""
    min_tip_gwei: Annotated[Decimal, Field(ge=0, le=100)] = Decimal("0.1")
    """The least tip, or the least gas price on a chain without base fees (docs/chains.md)."""
    mint_balance_floor_wei: Annotated[int, Field(ge=0)] = 0
    """Below it a mint wallet needs gas money: an alert, or a top-up. 0 is no floor."""
    relay_balance_floor_wei: Annotated[int, Field(ge=0)] = 0
    treasury: TreasurySettings | None = None

    @model_validator(mode="after")
    def _treasury_has_a_floor(self) -> Self:
        if self.treasury is not None and not any(self.balance_floors().values()):
            raise ValueError(
                "treasury has no effect without mint_balance_floor_wei or relay_balance_floor_wei"
            )
        return self

    @model_validator(mode="after")
    def _can_pay_the_least_tip(self) -> Self:
        if self.min_tip_gwei > self.max_fee_gwei:
            raise ValueError(
                "min_tip_gwei is above max_fee_gwei, so that no transaction could ever be sent"
            )
        return self

    def named_wallets(self) -> list[NamedWallet]:
        """All wallets of this section, in its order."""
        named = []
        if self.minter_key_file is not None:
            signer = SignerSettings(
                key_file=self.minter_key_file, password_file=self.minter_password_file
            )
            named.append(NamedWallet("operator.minter_key_file", "mint", signer))
        if self.relay_key_file is not None:
            signer = SignerSettings(
                key_file=self.relay_key_file, password_file=self.relay_password_file
            )
            named.append(NamedWallet("operator.relay_key_file", "relay", signer))
        if self.treasury is not None:
            named.append(NamedWallet("operator.treasury", "treasury", self.treasury))
        return named + [
            NamedWallet(f"operator.wallets[{number}]", wallet.kind, wallet)
            for number, wallet in enumerate(self.wallets or ())
        ]

    def balance_floors(self) -> dict[str, int]:
        """In wei, by kind of wallet; 0 is no floor."""
        return {"mint": self.mint_balance_floor_wei, "relay": self.relay_balance_floor_wei}

    def top_ups(self) -> TopUpPolicy | None:
        """Return None without a treasury."""
        if self.treasury is None:
            return None
        return TopUpPolicy(
            self.treasury.top_up_wei, self.treasury.max_wei_per_day, self.balance_floors()
        )

    @property
    def max_fee_wei(self) -> int:
        return int(self.max_fee_gwei * GWEI)

    def fees(self) -> FeePolicy:
        return FeePolicy(cap=self.max_fee_wei, min_tip=int(self.min_tip_gwei * GWEI))


class RelaySettings(Section):
    gas_budget_wei_per_day: Annotated[int, Field(ge=0)] = 0
    """The gas of one identity's calls in a UTC day, over all its wallets; 0 is no budget."""
    total_gas_budget_wei_per_day: Annotated[int, Field(ge=0)] = 0
    """The gas of all calls and of brands' redemptions in a UTC day; 0 is no budget."""
    brand_gas_budget_wei_per_day: Annotated[int, Field(ge=0)] = 0
    """The gas of one brand's redemptions of charges in a UTC day; 0 is no budget."""

    def budgets(self) -> GasBudgets:
        return GasBudgets(
            self.gas_budget_wei_per_day,
            self.total_gas_budget_wei_per_day,
            self.brand_gas_budget_wei_per_day,
        )


class PaymentSettings(Section):
    """The payment provider's account. Without this section there are no payments."""

    base_url: WebUrl = "https://api.stripe.com"
    secret_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    secret_key_file: SecretFile | None = None
    signing_secret: Annotated[SecretStr, Field(min_length=1)] | None = None
    signing_secret_file: SecretFile | None = None
    """Verifies the provider's events."""

    @model_validator(mode="after")
    def _has_its_secrets(self) -> Self:
        for name in ("secret_key", "signing_secret"):
            if (getattr(self, name) is None) == (getattr(self, f"{name}_file") is None):
                raise ValueError(f"give either {name} or {name}_file")
        return self

    def key(self) -> SecretStr:
        return resolve_secret(self.secret_key, self.secret_key_file)

    def events_secret(self) -> SecretStr:
        return resolve_secret(self.signing_secret, self.signing_secret_file)


class DnsSettings(Section):
    """The nameservers for TXT records; by default the machine's own."""

    nameservers: IpAddresses = ()
    port: Port = 53
    timeout_seconds: Annotated[float, Field(gt=0, le=30)] = 5.0
    """The time for one query, over all nameservers."""


class ChatSettings(Section):
    """The chat platform's services for purchase constraints, beside `[accounts.discord]`."""

    levels_url: LevelsUrl | None = None
    """The URL of the levelling bot, with {guild_id} and {user_id}."""


class SiteSettings(Section):
    """The host sites of all brands: how ltzd identifies their users, and the paths of its API."""

    base_url: SiteUrl = "https://{host}"
    """{host} is the value of the request's Host header."""
    rest_prefix: PathName = "wp-json"
    namespace: PathName = "loyalty"


class Settings(Section):
    """All settings of `ltzd run`. URLs are secrets because they may hold passwords."""

    database_url: DatabaseUrl
    redis_url: RedisUrl | None = None
    master_key_file: SecretFile
    old_master_key_files: SecretFiles = ()
    """Old master keys: they decrypt existing rows and encrypt no new ones."""
    roles: Roles = ROLES
    staging: bool = False
    """Whether outside services may be on this machine, such as those of `ltzd sandbox`."""
    explorer_url: WebUrl | None = None
    database: DatabaseSettings = DatabaseSettings()
    node: NodeSettings
    contracts: ContractSettings
    identity: IdentitySettings
    http: HttpSettings = HttpSettings()
    admin: AdminSettings = AdminSettings()
    operator: OperatorSettings = OperatorSettings()
    relay: RelaySettings = RelaySettings()
    payments: PaymentSettings | None = None
    dns: DnsSettings = DnsSettings()
    chat: ChatSettings = ChatSettings()
    accounts: AccountSettings = AccountSettings()
    site: SiteSettings = SiteSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings | None = None
    retention: RetentionSettings = RetentionSettings()

    @model_validator(mode="after")
    def _roles_have_what_they_need(self) -> Self:
        if "operator" in self.roles and self.operator.wallets is None:
            missing = [
                f"operator.{name}"
                for name in ("minter_key_file", "relay_key_file")
                if getattr(self.operator, name) is None
            ]
            if missing:
                raise ValueError(
                    f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} needed for "
                    "the role operator, or operator.wallets (an empty list if all wallets are "
                    "added by `ltzd wallet add`)"
                )
        return self

    @model_validator(mode="after")
    def _has_two_ports(self) -> Self:
        if "http" in self.roles and self.http.shares_its_port_with(self.admin):
            raise ValueError("admin.port is that of http: give each server a port of its own")
        return self

    def refuse_dev_providers(self) -> None:
        """Raises FileRejected with each outside service on plain HTTP or on this machine.

        With `staging` a service may be on this machine, by either scheme.
        """
        urls = self.identity.urls()
        if self.payments is not None:
            urls["payments.base_url"] = self.payments.base_url
        urls.update(self.accounts.urls())
        if self.chat.levels_url is not None:
            urls["chat.levels_url"] = self.chat.levels_url
        urls["site.base_url"] = self.site.base_url.replace("{host}", "site.example")
        faults = []
        for name, url in urls.items():
            parts = urlsplit(url)
            is_here = may_reach_this_machine(parts.hostname or "")
            if is_here and not self.staging:
                faults.append(
                    f"{name} must be an https URL of another machine; the sandbox is for "
                    "`ltzd dev` and, with staging = true, for staging."
                )
            elif parts.scheme != "https" and not is_here:
                faults.append(
                    f"{name} must be an https URL: secrets and answers would travel unencrypted."
                )
        if faults:
            raise FileRejected(faults)


class _Variables(BaseSettings, Settings):
    """The names of the variables for pydantic-settings; never instantiated."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__")


def read_settings(path: Path, roles: str | None = None) -> Settings:
    """Read the settings from a file and the environment; `roles` (`http,operator`) overrides both.

    Raises Misconfigured, and FileRejected with a line for every fault.
    """
    file, faults = _toml_file(path)
    faults += _unknown_variables()
    try:
        values = _merged(file.document, EnvSettingsSource(_Variables)())
    except SettingsError as error:
        raise FileRejected([*faults, f"{PREFIX} variables: {error}"]) from None
    if roles is not None:
        values["roles"] = roles
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        faults += [_fault(file, fault["loc"], reason_of(fault), roles) for fault in details]
        raise FileRejected(faults) from None
    if faults:
        raise FileRejected(faults)
    return settings


def read_node(path: Path) -> NodeSettings:
    """Read only the section `node`, for `ltzd deploy`, which runs before there are contracts.

    Raises Misconfigured, and FileRejected with a line for every fault in it.
    """
    file, faults = _toml_file(path)
    try:
        values = _merged(file.document, EnvSettingsSource(_Variables)())
    except SettingsError as error:
        raise FileRejected([*faults, f"{PREFIX} variables: {error}"]) from None
    try:
        node = NodeSettings.model_validate(values.get("node", {}))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        faults += [_fault(file, ("node", *each["loc"]), reason_of(each), None) for each in details]
        raise FileRejected(faults) from None
    if faults:
        raise FileRejected(faults)
    return node


def _toml_file(path: Path) -> tuple[TomlFile, list[str]]:
    """Read the file, with a fault if others can change it or can read a secret in it."""
    try:
        checked = read_checked(path)
        # Editors on Windows write a byte-order mark at the start of a file.
        text = checked.content.decode("utf-8-sig")
    except Misconfigured as error:
        raise Misconfigured(f"The settings file {error.message}.") from error
    except UnicodeError as error:
        raise Misconfigured(
            f"The settings file {path} cannot be read: it is not UTF-8 text."
        ) from error
    file = TomlFile(text.replace("\r\n", "\n"), path.name)
    secret = next(inline_secrets(Settings, file.document), None)
    if secret is not None and checked.exposed is not None:
        return file, [file.fault(secret, checked.exposed)]
    return file, [] if checked.changeable is None else [checked.changeable]


def _variables() -> dict[str, str]:
    """The names of ltzd's variables as given, by the name in capitals without the prefix."""
    names = [name for name in os.environ if name.upper().startswith(PREFIX)]
    return {name.upper().removeprefix(PREFIX): name for name in names}


def _unknown_variables() -> list[str]:
    """Faults for unknown top-level names; those in a section are found by its validation."""
    return [
        f"{name}: unknown variable"
        for key, name in _variables().items()
        if key.partition("__")[0].lower() not in Settings.model_fields and key != DEV_VARIABLE
    ]


def _merged(lower: Mapping[str, object], upper: Mapping[str, object]) -> dict[str, object]:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(below, value)
        else:
            merged[key] = value
    return merged


def _fault(file: TomlFile, place: FieldPath, reason: str, roles: str | None) -> str:
    """The fault with the place of its value: a variable, `--roles`, or a line of the file."""
    if roles is not None and place[:1] == ("roles",):
        return f"--roles: {reason}"
    given = _variables()
    names = [str(part).upper() for part in place if isinstance(part, str)]
    for length in range(len(names), 0, -1):
        name = given.get("__".join(names[:length]))
        if name is not None:
            return (
                f"{name}: {reason}"
                if length == len(names)
                else f"{name}: {dotted(place)}: {reason}"
            )
    return file.fault(place, reason)
