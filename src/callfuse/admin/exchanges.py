"""Serve the endpoint `findings/exchange`: what the vendor sent and what the client got in the exchange of a finding.

Answers are kept if `admin.keep_exchanges` is on (`observe/exchanges.py`). A body is decoded on request, in a thread:
its content coding is removed, it is read as UTF-8, unprintable characters are escaped, and known forms of secrets are
masked.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from callfuse.admin.live import Endpoint
from callfuse.admin.queries import BadQuery
from callfuse.asgi import CallFuseMiddleware
from callfuse.asgi.codings import UnreadableBodyError, unpacker_of
from callfuse.model.secrets import star_secrets
from callfuse.observe.exchanges import KeptAnswer, KeptExchange


class UnknownExchange(BadQuery):
    """Raised for a finding whose exchange is not kept."""

    status = 404


class ExchangesPage:
    """The endpoint `findings/exchange`. `endpoints`: the endpoint by its path."""

    def __init__(self, middleware: CallFuseMiddleware) -> None:
        self._middleware = middleware
        middleware.exchanges.attach_reader()
        self.endpoints: Mapping[str, Endpoint] = {"/findings/exchange": self._exchange}

    async def _exchange(self, request: Request) -> Response:
        kept = self._middleware.exchanges
        if not kept.is_on:
            raise UnknownExchange("no exchange is kept: admin.keep_exchanges is off")
        found = kept.find(request.query_params.get("id", ""))
        if found is None:
            raise UnknownExchange(
                "this exchange is not kept: it is too old, was dropped to make room, or was served by another process"
            )
        limit = self._middleware.resolved.config.admin.max_exchange_bytes
        return JSONResponse(await run_in_threadpool(_as_json, found, limit))


def _as_json(exchange: KeptExchange, limit: int) -> dict[str, Any]:
    """Return an exchange as an object: the answers of the vendor, and the client's answer (None before it has
    begun)."""
    return {
        "began": exchange.began,
        "is_over": exchange.is_over,
        "findings": [*exchange.findings],
        "vendor": [_answer(one, limit) for one in (*exchange.vendor.answers,)],
        "client": next((_answer(one, limit) for one in (*exchange.client.answers,)), None),
    }


def _answer(answer: KeptAnswer, limit: int) -> dict[str, Any]:
    """Return an answer as an object: its `first` and `last` text, and the number of bytes left out between them."""
    first, last, left_out = b"".join((*answer.first,)), b"".join(answer.last), answer.left_out
    is_unpacked = True
    if answer.coding:
        first, is_unpacked = _unpack((first,) if left_out else (first, last), answer.coding, limit)
        last = b""
    return {
        "status": answer.status,
        "media_type": _shown(answer.media_type.encode()),
        "coding": _shown(answer.coding.encode()),
        "is_unpacked": is_unpacked,
        "size": answer.size,
        "ended": answer.ended,
        "first": _shown(first),
        "left_out": left_out,
        "last": _shown(last),
    }


def _unpack(chunks: Iterable[bytes], coding: str, limit: int) -> tuple[bytes, bool]:
    """Decompress a body, or its beginning, to at most `limit` bytes. Returns the bytes, and whether they are
    complete."""
    plain = bytearray()
    try:
        unpacker = unpacker_of(coding)
        for chunk in chunks:
            for piece in unpacker.feed(chunk):
                plain += piece
                if len(plain) > limit:
                    return bytes(plain[:limit]), False
    except UnreadableBodyError:
        return bytes(plain), False
    return bytes(plain), True


def _shown(content: bytes) -> str:
    """Decode bytes as text that is safe for terminals and pages."""
    text = star_secrets(content.decode("utf-8", "replace"))
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text])
