"""The part of a settings file with which `ltzd run` uses this sandbox, for staging.

The block holds the sandbox's credentials, so the settings file must be its owner's alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from ltzd.dev.sandbox.server import Sandbox
from ltzd.rules.brands.toml_writer import toml_value
from ltzd.rules.oauth.accounts import PROVIDERS


def settings_block(sandbox: Sandbox) -> str:
    """TOML. The first lines belong above the first section of a settings file."""
    lines = ["staging = true", f"explorer_url = {toml_value(sandbox.explorer_url)}"]
    for name, values in _sections(sandbox):
        given = {key: value for key, value in values.items() if value is not None}
        lines += ["", f"[{name}]", *(f"{key} = {toml_value(given[key])}" for key in given)]
    return "\n".join(lines) + "\n"


def _sections(sandbox: Sandbox) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The sections by name, with their values; a value of None is not set."""
    identity, payments = sandbox.identity_policy(), sandbox.payments_policy()
    yield (
        "identity",
        {
            "base_url": identity.base_url,
            "app_id": identity.app_id,
            "app_secret": identity.app_secret,
            "signer_id": identity.signer_id,
            "signer_key": identity.signer_key,
        },
    )
    yield (
        "payments",
        {
            "base_url": payments.base_url,
            "secret_key": payments.secret_key,
            "signing_secret": payments.signing_secret,
        },
    )
    accounts = sandbox.accounts_policy()
    for provider in PROVIDERS:
        yield f"accounts.{provider}", asdict(getattr(accounts, provider))
    yield "chat", {"levels_url": sandbox.levels_url()}
    yield "site", {"base_url": sandbox.site_url}
    dns = sandbox.dns_policy()
    yield "dns", {"nameservers": dns.nameservers, "port": dns.port}
