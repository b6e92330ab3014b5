"""A processor in the running event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from callfuse import CallFuseMiddleware
from callfuse.asgi.fail_open import FailOpen
from callfuse.config.serve import ServeSettings
from callfuse.dialects import error_body
from callfuse.envoy.app import EnvoyApp
from callfuse.envoy.server import ExternalProcessor, lifespan, listening

GRACE_S = 5.0
PATIENCE_S = 30.0


@asynccontextmanager
async def processor(
    upstream: str | None = None, *, address: str = "127.0.0.1:0", **settings: Any
) -> AsyncIterator[tuple[str, CallFuseMiddleware]]:
    """A processor with these settings of loops; gives its address and its middleware."""
    fuse = CallFuseMiddleware(
        EnvoyApp(ServeSettings(upstream=upstream), error_body), {"tool_call_loop": settings}, via=True
    )
    served = ExternalProcessor(fuse, FailOpen(fuse.bus))
    async with lifespan(fuse), listening(served, address, most_body_bytes=64_000_000, grace_s=GRACE_S) as bound:
        yield bound, fuse


async def idle(fuse: CallFuseMiddleware) -> None:
    """Wait until no exchange is served any more."""
    async with asyncio.timeout(PATIENCE_S):
        while fuse.in_flight:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
