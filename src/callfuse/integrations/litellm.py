"""Wrap LiteLLM's proxy: serve `app` in place of LiteLLM's own.

    CONFIG_FILE_PATH=config.yaml uvicorn callfuse.integrations.litellm:app

LiteLLM reads its configuration from the file that `CONFIG_FILE_PATH` names, callfuse its own from the environment and
the file that `CALLFUSE_CONFIG` names. The guard is outside of all middleware of LiteLLM: it gets requests as clients
send them, and asks the model again through LiteLLM, with its keys, limits and budgets.

Importing this module imports LiteLLM, and raises ImportError if `litellm[proxy]` is not installed.
"""

from importlib import import_module
from typing import Final, cast

from callfuse.asgi import CallFuseMiddleware
from callfuse.asgi.types import ASGIApp

__all__ = ["app"]

PROXY: Final = "litellm.proxy.proxy_server"


def _proxy() -> ASGIApp:
    """Import LiteLLM's own app. Raises ImportError, which says what to install."""
    try:
        module = import_module(PROXY)
    except ModuleNotFoundError as error:
        what = f"{error.name} is missing" if error.name else str(error)
        raise ImportError(f"this needs LiteLLM's proxy ({what}): pip install 'litellm[proxy]'") from error
    return cast(ASGIApp, module.app)


app: Final = CallFuseMiddleware(_proxy())
"""LiteLLM's proxy behind a `CallFuseMiddleware` with the settings of environment and file."""
