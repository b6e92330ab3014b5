"""Write the lines that `callfuse serve` prints at its start: where it listens, what it guards, and the base URL for
each client."""

from typing import Final

from callfuse import __version__
from callfuse.config import Config, without_credentials
from callfuse.config.environment import ADMIN_TOKEN
from callfuse.config.serve import ServeSettings
from callfuse.policy.presets import mode_name
from callfuse.policy.settings import LoopSettings
from callfuse.proxy.target import Upstream
from callfuse.stores.address import MEMORY

CLIENTS: Final = (
    ("OpenAI", "/v1", "OPENAI_BASE_URL", ("openai", "vllm", "litellm")),
    ("Anthropic", "", "ANTHROPIC_BASE_URL", ("anthropic",)),
    ("Gemini", "", "GOOGLE_GEMINI_BASE_URL", ("googleapis", "gemini")),
    ("Ollama", "", "OLLAMA_HOST", ("ollama", ":11434")),
)
"""Kinds of clients: the path at the end of their base URL, the variable that most of them read, and a part of their
upstreams' host names."""


def greeting(config: Config, port: int) -> str:
    """Return the first line: where callfuse listens and what it guards."""
    serve = config.serve
    guarded, mode = upstreams_of(serve), mode_text(config.tool_call_loop)
    return f"callfuse {__version__} on {base_url(serve, port)} guards {guarded} ({mode})"


def upstreams_of(serve: ServeSettings) -> str:
    """Return the upstreams, without credentials."""
    upstreams = [serve.upstream] if serve.upstream else []
    upstreams += [f"{route.path} -> {route.upstream}" for route in serve.routes]
    return ", ".join(map(without_credentials, upstreams))


def admin_notice(config: Config, port: int, token: str) -> str:
    """Return the line with the URL of the admin page and its generated token."""
    page = f"{base_url(config.serve, port)}{config.admin.path}/"
    return f"callfuse admin page: {page} with the token {token} (new at each start; {ADMIN_TOKEN} sets one)"


def hints(config: Config, port: int, *, has_token: bool) -> list[str]:
    """Return the lines after the first one: base URLs by kind of client, the admin page, and warnings. There are fewer
    at the log levels `warning` and `error`."""
    serve = config.serve
    lines = []
    if serve.log_level in ("debug", "info"):
        places = [("", serve.upstream)] if serve.upstream else []
        places += [(route.path, route.upstream) for route in serve.routes]
        for path, upstream in places:
            lines += _client_lines(f"{base_url(serve, port)}{path}", upstream)
        if config.admin.enabled and has_token:
            lines.append(f"  admin page: {base_url(serve, port)}{config.admin.path}/ with the token of {ADMIN_TOKEN}")
    if serve.log_level != "error" and serve.workers > 1 and config.store == MEMORY:
        lines.append(
            f"callfuse: warning: {serve.workers} workers and no store: each worker only knows its own "
            "exchanges and the settings made there; --store redis://HOST shares them"
        )
    return lines


def _client_lines(base: str, upstream: str) -> list[str]:
    """Return the base URL for each kind of client of an upstream, by its host; for all kinds if the host does not show
    it."""
    origin = Upstream.parse(upstream).origin
    kinds = [kind for kind in CLIENTS if any(word in origin for word in kind[3])] or list(CLIENTS)
    return [f"  {name} clients: {variable}={base}{path}" for name, path, variable, _ in kinds]


def base_url(serve: ServeSettings, port: int) -> str:
    """Return the URL at which callfuse listens."""
    host = f"[{serve.host}]" if ":" in serve.host else serve.host
    return f"{serve.scheme}://{host}:{port}"


def mode_text(settings: LoopSettings) -> str:
    """Return the guard's actions on loops, in words."""
    if not settings.enabled:
        return "off: tool_call_loop.enabled is false"
    return f"mode={mode_name(settings.ladder) or ', '.join(settings.ladder)}, max_repeats={settings.max_repeats}"
