"""Endpoint: an operation over HTTP, from a request's head to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .audit import audit
from .auth import Caller
from .body import Receive, read, while_there
from .decoding import decode
from .heads import check_json, length_of
from .hub import Hub, State
from .large import check_count, condensed
from .operation import Answer, Call, Operation
from .parameters import Parameters
from .problems import Forbidden, TooLarge, Unavailable


class Endpoint:
    """One operation, with all that can be made ready for it.

    Args:
        operation: what is asked for.
        hub: the running service.
    """

    def __init__(self, operation: Operation, hub: Hub) -> None:
        self.operation = operation
        self.name = f"{operation.method} {operation.path}"
        self._hub = hub
        self._decoder = msgspec.json.Decoder(operation.body) if operation.body and operation.decoded else None
        self._blocks = "blocks" in getattr(operation.body, "__struct_fields__", ())
        self._parameters = Parameters(operation)
        self._most = hub.settings.max_plan_body if operation.long else hub.settings.max_body

    async def answer(
        self, head: dict[bytes, bytes], path: Mapping[str, str], query: bytes, receive: Receive
    ) -> msgspec.Struct | Answer:
        """Answer a request.

        Args:
            head: the headers that matter.
            path: the path's parameters, decoded.
            query: what stands behind the question mark.
            receive: gives the body, as ASGI has it.

        Raises:
            Rejected: it is not answered as asked; nothing was changed.
            ClientGoneError: nobody waits for the answer any more.
        """
        operation, hub = self.operation, self._hub
        caller = self._caller(head)
        self._parameters.check(path)
        given = self._parameters.read(query)
        if operation.body is None:
            return await operation.handler(Call(hub, caller, None, b"", path, given))
        check_json(head)
        length = length_of(head)
        if length is not None and length > self._most:
            raise TooLarge(f"a body of {length} bytes; at most {self._most} are taken")
        size = self._most if length is None else length
        hub.loads.take(caller.tenant, size, long=operation.long)
        try:
            raw = await read(receive, length, self._most, hub.settings.body_seconds)
            body = await self._decoded(raw)
            answering = operation.handler(Call(hub, caller, body, raw, path, given))
            return await (while_there(receive, answering) if operation.long else answering)
        finally:
            hub.loads.give_back(caller.tenant, size, long=operation.long)

    async def _decoded(self, raw: bytes | bytearray) -> Any:  # noqa: ANN401
        if self._decoder is None:
            return None
        if not self._blocks:
            return decode(self._decoder, raw)
        check_count(raw, self._hub.settings.max_blocks)
        body = decode(self._decoder, raw)
        await condensed(raw, body.blocks)
        return body

    def _caller(self, head: Mapping[bytes, bytes]) -> Caller:
        operation, hub = self.operation, self._hub
        if operation.open:
            return Caller()
        if hub.state is not State.READY and not operation.always:
            raise Unavailable(f"the service is {hub.state.value}")
        authorization = head.get(b"authorization")
        caller = hub.gate.identify(None if authorization is None else authorization.decode("latin-1"))
        refused = operation.operator and not caller.operator
        if hub.rates is not None and (refused or not operation.free):  # nobody fills the audit log for free
            hub.rates.take(caller)
        if refused:
            audit("operator's act", caller, operation=self.name, result="refused")
            raise Forbidden("this takes an operator's key")
        return caller
