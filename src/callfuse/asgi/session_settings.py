"""Give one session settings by the host's code, as users do with commands: `CallFuseMiddleware.set_session`."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from callfuse.asgi.changes import change_session
from callfuse.asgi.commands import settings_change
from callfuse.config import load_config
from callfuse.conversations.identity import FINGERPRINT, NO_CREDENTIAL, Lane, credential_of, session_name
from callfuse.conversations.ledger import Ledger, SessionKey, SessionSearch
from callfuse.errors import ConfigError
from callfuse.observe.events import SettingsChanged
from callfuse.policy.presets import Preset
from callfuse.policy.sections import ModelSettings, ToolSettings
from callfuse.policy.settings import NO_OVERRIDES, LoopSettings
from callfuse.policy.tiers import Overrides, explicit_values

ClientHeaders = Mapping[str, str] | Iterable[tuple[bytes, bytes]]
"""The headers of a client's request: a mapping of texts, or the pairs of an ASGI scope."""
_PER_TOOL: Final = "per_tool"
_UNKNOWN: Final = "it is unknown: pass the headers of its client, which contain the credential of the session"


def session_overrides(config: LoopSettings | Mapping[str, Any], server: LoopSettings) -> Overrides:
    """Return a configuration's overrides for one session. Raises ConfigError for settings that it cannot have."""
    other: dict[str, Any] = {}
    if not isinstance(config, LoopSettings):
        if server.escalate_model and "escalate_model" not in config:  # a session's ladder may contain `escalate`
            other = {"escalate_model": server.escalate_model}
        config = load_config({"tool_call_loop": {**other, **config}}, {}).tool_call_loop
    given = config.model_dump(mode="json", exclude_unset=True, exclude=set(other))
    tools = given.pop(_PER_TOOL, {})
    by_preset = config.mode.sets if isinstance(config.mode, Preset) else {}
    wrong = [key for key in given if key not in ModelSettings.model_fields and key not in by_preset]
    if wrong:
        own = ", ".join((*ModelSettings.model_fields, _PER_TOOL))
        raise ConfigError("\n".join(f"{key}: cannot be set for one session; use {own}" for key in wrong))
    values = ModelSettings.model_validate({key: given[key] for key in given if key in ModelSettings.model_fields})
    return Overrides(
        explicit_values(values),
        {tool: explicit_values(ToolSettings.model_validate(own)) for tool, own in tools.items()},
    )


async def write_session(
    ledger: Ledger, session: str, overrides: Overrides, headers: ClientHeaders, server: LoopSettings, now: float
) -> SettingsChanged | None:
    """Write a session's settings. Returns the change to report, if any. Raises LookupError if it is unknown."""
    changed: SettingsChanged | None = None
    name = session_name(session)
    for key in await _keys(ledger, name, credential_of(_read(headers), further=server.further_credentials), now):
        _, state = await ledger.read(Lane(*key, b"", FINGERPRINT), now)
        await change_session(ledger, key, state, lambda one: replace(one, by_code=overrides or NO_OVERRIDES), now)
        changed = settings_change(name, state.by_code, overrides, by="code") or changed
    return changed


async def _keys(ledger: Ledger, name: str, credential: bytes, now: float) -> list[SessionKey]:
    """Return the sessions of this name: the credential's, or all known ones without a credential."""
    if credential != NO_CREDENTIAL:
        return [(credential, name)]
    found = await ledger.find_sessions(name, now) if isinstance(ledger, SessionSearch) else []
    if not found:
        raise LookupError(f"session {name!r}: {_UNKNOWN}")
    return [one.key for one in found]


def _read(headers: ClientHeaders) -> dict[bytes, bytes]:
    """Return headers by their lower-case names."""
    if isinstance(headers, Mapping):
        return {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in headers.items()}
    return {bytes(name).lower(): bytes(value) for name, value in headers}
