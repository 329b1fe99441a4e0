"""The settings of how long personal data is kept."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from ltzd.daemon.settings.section import Section
from ltzd.store.retention.expiry import RetentionPolicy

_Days = Annotated[int, Field(ge=0, le=36_500)]


class RetentionSettings(Section):
    """Days; 0 keeps the data for ever."""

    event_addresses_days: _Days = 0
    user_addresses_days: _Days = 0
    pregeneration_requests_days: _Days = 0
    events_days: _Days = 0

    def policy(self) -> RetentionPolicy:
        return RetentionPolicy(
            _after(self.event_addresses_days),
            _after(self.user_addresses_days),
            _after(self.pregeneration_requests_days),
            _after(self.events_days),
        )


def _after(days: int) -> timedelta | None:
    return timedelta(days=days) if days else None
