"""The whole way over real sockets: SDK, guard, reverse proxy, scripted vendor."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from callfuse import CallFuseMiddleware
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from callfuse.testing import Answer, Call, ScriptedVendor, VendorRequest
from tests.support.serving import serve


@asynccontextmanager
async def wired(vendor: ScriptedVendor, mode: str | list[str], **settings: Any) -> AsyncIterator[str]:
    """The guarded URL in front of this vendor."""
    config = {"tool_call_loop": {"mode": mode, **settings}}
    async with (
        serve(vendor) as upstream,
        serve(CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), config)) as url,
    ):
        yield url


def beside(request: VendorRequest) -> Answer:
    """Reads a page, then searches the same thing for ever, the third time with that page beside it."""
    page, search = Call("read_page", {"url": "https://example.org/"}), Call("search_web", {"query": "llamas"})
    if request.guidance:
        return Answer("Enough.")
    return Answer(calls=[(page,), (search,), (search,), (search, page)][request.number - 1])
