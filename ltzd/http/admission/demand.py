"""Counts each party's requests, and finds the parties that need no more than an equal part."""

from ltzd.rules.admission import AdmissionPolicy, equal_part

_LEAST = 0.5
"""A party whose requests have faded below this count has asked for nothing lately."""


class Demand:
    """The requests of one urgency, served and refused; the counts decay with every period."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self._requests: dict[str, float] = {}
        self._served = 0.0
        self._refused = 0.0
        self._equal_part = 0.0

    def served(self, party: str) -> None:
        self._requests[party] = self._requests.get(party, 0.0) + 1
        self._served += 1

    def refused(self, party: str) -> None:
        self._requests[party] = self._requests.get(party, 0.0) + 1
        self._refused += 1

    @property
    def is_refused(self) -> bool:
        """Whether more than a few of the requests are refused."""
        return self._refused > self._policy.few_refused * (self._refused + self._served)

    def is_modest(self, party: str) -> bool:
        """Whether all that the party asks for fits into an equal part of what is served."""
        return self._requests.get(party, 0.0) < self._equal_part

    def end_period(self) -> None:
        fade = self._policy.demand_fade
        self._served *= fade
        self._refused *= fade
        self._requests = {
            party: fade * count for party, count in self._requests.items() if fade * count >= _LEAST
        }
        self._equal_part = equal_part(self._requests.values(), self._served, self._policy)
