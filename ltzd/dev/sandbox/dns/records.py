"""The sandbox's zone: TXT records by name, kept in a journal, and the answer to each question.

What a door has set, be it nothing, stays as it is; what the start of the instance sets is a
beginning that a door may change for good.
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

Setter = Literal["start", "door"]

_STRING_BYTES: Final = 255
_TTL_SECONDS: Final = 0


class TxtRecordStore:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # Names are equal in any letter case.
        self._values: dict[Name, tuple[str, ...]] = {}
        self._set_by: dict[Name, Setter] = {}

    def remember(self, record: Record) -> None:
        """Raises KeyError, TypeError or ValueError for a record that is none."""
        setter: Setter = "door" if record["by"] == "door" else "start"
        values = record["txt"]
        if not isinstance(values, list):
            raise TypeError
        self._put(name_of(str(record["name"])), tuple(map(str, values)), setter)

    async def set(self, name: Name, values: tuple[str, ...], setter: Setter) -> None:
        """Also the first of several strings may be empty; no value at all removes the record."""
        if setter == "start" and self._set_by.get(name) == "door":
            return
        self._put(name, values, setter)
        record: Record = {"name": name.to_text(), "txt": list(values), "by": setter}
        await self._journal.durable(self._journal.append(record))

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
            self._fill(response, query.question[0].name, query.question[0].rdtype)
        return response

    def _fill(self, response: Message, name: Name, kind: dns.rdatatype.RdataType) -> None:
        values = self._values.get(name, ())
        if values and kind in {dns.rdatatype.TXT, dns.rdatatype.ANY}:
            records = [_record(value) for value in values]
            response.answer.append(dns.rrset.from_rdata_list(name, _TTL_SECONDS, records))
        elif not self._is_there(name):
            response.set_rcode(dns.rcode.NXDOMAIN)

    def _is_there(self, name: Name) -> bool:
        """Names above a record are there too, though nothing stands at them."""
        return any(values and one.is_subdomain(name) for one, values in self._values.items())

    def _put(self, name: Name, values: tuple[str, ...], setter: Setter) -> None:
        self._values[name] = values
        self._set_by[name] = setter


def name_of(text: str) -> Name:
    """Raises ValueError for what cannot be a name."""
    try:
        return dns.name.from_text(text)
    except dns.exception.DNSException as error:
        raise ValueError("must be a domain name") from error


def _record(value: str) -> TXT:
    raw = value.encode()
    strings = [raw[at : at + _STRING_BYTES] for at in range(0, len(raw), _STRING_BYTES)]
    return TXT(dns.rdataclass.IN, dns.rdatatype.TXT, strings or [b""])
