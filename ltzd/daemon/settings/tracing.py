"""The settings of the section `[tracing]`. Without the section nothing is traced."""

from typing import Annotated

from pydantic import Field, SecretStr

from ltzd.daemon.settings.section import Section, secret_from_file
from ltzd.daemon.settings.value_types import SecretFile, WebUrl


class TracingSettings(Section):
    endpoint: WebUrl
    """Where spans are sent as OTLP over HTTP: the whole URL, such as http://127.0.0.1:4318/v1/traces."""
    ratio: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The part of all traces that is exported. Processes with the same ratio export the same."""
    service_name: Annotated[str, Field(min_length=1, max_length=100)] = "ltzd"
    token_file: SecretFile | None = None
    """Sent to the collector as a bearer token."""

    def token(self) -> SecretStr | None:
        return None if self.token_file is None else secret_from_file(self.token_file)
