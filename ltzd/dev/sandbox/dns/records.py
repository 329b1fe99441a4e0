"""The sandbox's DNS zone: TXT records by name, kept in a journal, and the answer to each query.

A record set through the control endpoint, also an empty one, stays. A record set at the start of
the instance is a default: it never replaces a record of the control endpoint.
"""

from typing import Final, Literal

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
from dns.message import Message
from dns.name import Name
from dns.rdtypes.ANY.TXT import TXT

from ltzd.dev.sandbox.journal import Journal, Record

Setter = Literal["start", "control"]

_STRING_BYTES: Final = 255
_TTL_SECONDS: Final = 0


class TxtRecordStore:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # dns.name.Name compares without regard to letter case.
        self._values: dict[Name, tuple[str, ...]] = {}
        self._set_by: dict[Name, Setter] = {}

    def apply_record(self, record: Record) -> None:
        """Raises KeyError, TypeError or ValueError for a malformed record."""
        setter: Setter = "start" if record["by"] == "start" else "control"
        values = record["txt"]
        if not isinstance(values, list):
            raise TypeError
        self._put(name_of(str(record["name"])), tuple(map(str, values)), setter)

    async def set(self, name: Name, values: tuple[str, ...], setter: Setter) -> None:
        """Replace the name's values; an empty tuple removes the record."""
        if setter == "start" and self._set_by.get(name) == "control":
            return
        self._put(name, values, setter)
        record: Record = {"name": name.to_text(), "txt": list(values), "by": setter}
        await self._journal.wait_durable(self._journal.append(record))

    def answer(self, query: Message) -> Message:
        response = dns.message.make_response(query, recursion_available=True)
        response.flags |= dns.flags.AA
        if query.opcode() != dns.opcode.QUERY:
            response.set_rcode(dns.rcode.NOTIMP)
        elif len(query.question) != 1:
            response.set_rcode(dns.rcode.FORMERR)
        elif query.question[0].rdclass != dns.rdataclass.IN:
            response.set_rcode(dns.rcode.REFUSED)
        else:
            self._add_answer(response, query.question[0].name, query.question[0].rdtype)
        return response

    def _add_answer(self, response: Message, name: Name, kind: dns.rdatatype.RdataType) -> None:
        values = self._values.get(name, ())
        if values and kind in {dns.rdatatype.TXT, dns.rdatatype.ANY}:
            records = [_record(value) for value in values]
            response.answer.append(dns.rrset.from_rdata_list(name, _TTL_SECONDS, records))
        elif not self._exists(name):
            response.set_rcode(dns.rcode.NXDOMAIN)

    def _exists(self, name: Name) -> bool:
        """Whether `name` has a record or is a parent of a name that has one."""
        return any(
            values and candidate.is_subdomain(name) for candidate, values in self._values.items()
        )

    def _put(self, name: Name, values: tuple[str, ...], setter: Setter) -> None:
        self._values[name] = values
        self._set_by[name] = setter


def name_of(text: str) -> Name:
    """Raises ValueError for a malformed domain name."""
    try:
        return dns.name.from_text(text)
    except dns.exception.DNSException as error:
        raise ValueError("must be a domain name") from error


def _record(value: str) -> TXT:
    raw = value.encode()
    strings = [raw[at : at + _STRING_BYTES] for at in range(0, len(raw), _STRING_BYTES)]
    return TXT(dns.rdataclass.IN, dns.rdatatype.TXT, strings or [b""])
