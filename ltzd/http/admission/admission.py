"""Admits each request of the public application through the gate.

A request is admitted once its body has arrived, so that a slow body holds no slot. The slot is
given back when the request is answered, or when it begins to wait for a block.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from sanic.request import Request

from ltzd.cache.rate_limits import RateLimitStatus
from ltzd.concurrency import work_slots
from ltzd.errors import LtzdError
from ltzd.http.admission.askers import BODY_BYTES, Askers
from ltzd.http.admission.gate import AdmissionGate, Asker
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.json_body import has_whole_body
from ltzd.rules.admission import Urgency

WindowOf = Callable[[str, LtzdError], RateLimitStatus | None]
"""The rate window that the refusal of a request to this path shows, or None."""


class Admission:
    def __init__(self, gate: AdmissionGate, askers: Askers, window_of: WindowOf) -> None:
        self.gate = gate
        self._askers = askers
        self._window_of = window_of

    def begin(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Admit the request: at once, or by the coroutine that is returned.

        A body that has not arrived whole is admitted by `body_arrived`. Raises Overloaded and
        ShareExceeded.
        """
        stream: Any = request.stream
        if not has_whole_body(stream):
            request.ctx.is_admission_due = True
            return None
        if not stream.request_body:
            return self._admit(request, b"")
        body = stream.recv_buffer[: min(BODY_BYTES, stream.request_bytes_left)]
        return self._admit(request, bytes(body))

    async def body_arrived(self, request: Request, body: bytes) -> None:
        """Raises as `begin` does."""
        if not getattr(request.ctx, "is_admission_due", False):
            return
        request.ctx.is_admission_due = False
        waiting = self._admit(request, body[:BODY_BYTES])
        if waiting is not None:
            await waiting

    def _admit(self, request: Request, body: bytes) -> Coroutine[Any, Any, None] | None:
        asker = self._askers.of(
            request.method,
            request.path,
            request.query_string,
            request.headers.get,
            body,
            client_network(request),
        )
        if asker.urgency is Urgency.ALWAYS:
            return None
        try:
            slot = self.gate.try_begin(asker)
        except LtzdError as refusal:
            self._show_window(request, refusal)
            raise
        if slot is None:
            return self._wait(request, asker)
        request.ctx.slot = slot
        work_slots.hold(slot)
        return None

    async def _wait(self, request: Request, asker: Asker) -> None:
        try:
            slot = await self.gate.wait(asker)
        except LtzdError as refusal:
            self._show_window(request, refusal)
            raise
        request.ctx.slot = slot
        work_slots.hold(slot)

    def _show_window(self, request: Request, refusal: LtzdError) -> None:
        window = self._window_of(request.path, refusal)
        if window is not None:
            request.ctx.window = window
