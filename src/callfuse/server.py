"""Provide the app of `callfuse serve` for other ASGI servers, such as granian and hypercorn.

    granian --interface asgi --factory callfuse.server:create_app
    hypercorn "callfuse.server:create_app()"

Settings come from the environment and from the file that CALLFUSE_CONFIG names. Address, workers, TLS and shutdown
timeout are the server's own options.
"""

import logging.config
import os

from callfuse.cli.heap import settle_heap, trim_heap
from callfuse.cli.reload import Origin
from callfuse.cli.serve import App, ServeSetup, build_app, own_log_config
from callfuse.cli.startup import file_of, resolve_to_serve
from callfuse.config.environment import ADMIN_TOKEN, admin_token, guardrail_key
from callfuse.errors import ConfigError
from callfuse.proxy.asgi import Receive, Scope, Send

__all__ = ["create_app"]


def create_app() -> App:
    """Make the reverse proxy behind the guard, with its admin page. Raises ConfigError if a setting is wrong."""
    resolved = resolve_to_serve(None, {})
    config = resolved.config
    token = admin_token(os.environ)
    guardrail_key(os.environ)  # checked early: the admin page reads it too late
    if config.admin.enabled and token is None:
        raise ConfigError(f"{ADMIN_TOKEN} is not set; set it, or turn the admin page off (CALLFUSE_ADMIN_ENABLED=off)")
    logging.config.dictConfig(own_log_config(config.serve))
    inner = build_app(ServeSetup(resolved, Origin.of(file_of(None), {}), token or ""))
    settle_heap()
    trim_heap()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:  # servers recognise ASGI 3 by the `async`
        await inner(scope, receive, send)

    return app
