"""`callfuse ext-proc`: serve as an external processor of Envoy until a signal ends it.

SIGTERM and SIGINT stop listening at once, let open streams end within `shutdown_timeout_s`, and exit with 0.
"""

import asyncio
import logging
import logging.config
import signal
import sys
from typing import Final

from callfuse import CallFuseMiddleware, __version__
from callfuse.asgi.fail_open import FailOpen
from callfuse.cli.greeting import mode_text, upstreams_of
from callfuse.cli.heap import settle_heap, trim_heap
from callfuse.cli.reload import Origin, ReloadingApp
from callfuse.cli.serve import log_config
from callfuse.config import Resolved
from callfuse.dialects import error_body
from callfuse.envoy.app import EnvoyApp, can_ask
from callfuse.envoy.server import ExternalProcessor, lifespan, listening

logger: Final = logging.getLogger("callfuse.envoy")

ENDS: Final = (signal.SIGINT, signal.SIGTERM)


def run(resolved: Resolved, origin: Origin | None, address: str) -> int:
    """Serve until a signal; returns the exit code, 1 if the address cannot be listened on. `origin`: the sources for
    reloads, None for no reloads."""
    logging.config.dictConfig(log_config(resolved.config.serve))
    try:
        asyncio.run(_serve(resolved, origin, address))
    except OSError as error:
        print(f"callfuse: cannot listen on {address}: {error}; use another --listen", file=sys.stderr)
        return 1
    return 0


async def _serve(resolved: Resolved, origin: Origin | None, address: str) -> None:
    settings = resolved.config.serve
    vendor = EnvoyApp(settings, error_body)
    fuse = CallFuseMiddleware(vendor, resolved, via=True)
    app = ReloadingApp(fuse, vendor, resolved, origin) if origin else fuse
    processor = ExternalProcessor(app, FailOpen(fuse.bus))
    limit, grace_s = fuse.settings.max_request_bytes, settings.shutdown_timeout_s
    ended = asyncio.Event()
    for number in ENDS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with (
        lifespan(app),
        listening(processor, address, most_body_bytes=limit, grace_s=grace_s) as bound,
    ):
        settle_heap()
        trim_heap()
        logger.info("%s", _greeting(resolved, bound))
        if not can_ask(settings):
            logger.info("no upstream: where the model would be asked again, the call is blocked; --upstream sets one")
        await ended.wait()
        logger.info("stopping: open streams have %g s to end", grace_s)


def _greeting(resolved: Resolved, address: str) -> str:
    config = resolved.config
    asks = f", asks {upstreams_of(config.serve)} again" if can_ask(config.serve) else ""
    return f"callfuse {__version__} on {address} guards for Envoy ({mode_text(config.tool_call_loop)}){asks}"
