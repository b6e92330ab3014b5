"""Find a running `callfuse serve`: the address of its admin page, and the token for it."""

import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from callfuse.config import load_config
from callfuse.config.environment import ADMIN_TOKEN, admin_token
from callfuse.errors import ConfigError
from callfuse.observe.printable import plain

_URL_HINT: Final = "use the address of the admin page, as in http://127.0.0.1:8100/_callfuse"
UNAUTHORIZED: Final = 401
UNREACHABLE: Final = "is `callfuse serve` running there? --url sets another address"
"""The advice if there is no answer."""
REFUSED: Final = f"the server refused the token in {ADMIN_TOKEN}; use the one set for it, or printed at its start"
"""The meaning of a 401 answer."""
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - what listens everywhere listens here


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The admin page of a running server: its address without a slash at the end, and its token."""

    url: str
    token: str

    @classmethod
    def find(cls, url: str) -> "RunningServer":
        """Return the server at an address; empty: the one with the settings of this environment. Raises ConfigError."""
        token, url = admin_token(os.environ), url or _own_url()
        if token is None:
            raise ConfigError(f"set {ADMIN_TOKEN} to the token that `callfuse serve` uses, or printed at its start")
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise ConfigError(f"--url {plain(url)}: {_URL_HINT}")
        return cls(url.partition("?")[0].partition("#")[0].rstrip("/"), token)


def _own_url() -> str:
    """Return the address of the admin page of a `callfuse serve` with the settings of this environment."""
    config = load_config()
    host = _EVERY_ADDRESS.get(config.serve.host, config.serve.host)
    return f"{config.serve.scheme}://{host}:{config.serve.port}{config.admin.path}"
