"""Compute the settings in effect for a model, a tool and a session, with the tier and the source of each value."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from callfuse.config import Resolved
from callfuse.config.model import KeyPath, dotted_name, is_secret
from callfuse.config.wording import masked, without_credentials
from callfuse.policy.settings import NO_OVERRIDES
from callfuse.policy.tiers import BY_PRESET, SESSION, Overrides, origin
from callfuse.reference.keys import as_plain, reference

DEFAULT, SERVER = "default", "server"
COMMAND = "command in the chat, or admin page"
"""The source of a session's own values."""
TOOL_KEYS = {"poller": "pollers", "changes_state": "state_changing", "ignore": "ignore"}
"""Settings of a tool, each with the key of `tool_call_loop` that applies if the tool has no entry of its own."""


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting in effect. `source` is empty for a default."""

    key: str
    value: Any
    tier: str
    source: str

    @property
    def text(self) -> str:
        """The value as in a file."""
        return as_text(self.value)

    @property
    def origin(self) -> str:
        """Tier and source as a short text."""
        return DEFAULT if self.tier == DEFAULT else f"{self.tier}: {self.source}"


def effective_rows(
    resolved: Resolved, model: str = "", tool: str | None = None, session: Overrides = NO_OVERRIDES
) -> Iterator[EffectiveSetting]:
    """Yield every setting in effect.

    `model` is backend and model as in `openai:gpt-4o`, empty for any; `tool` is None for any; `session`: the overrides
    of a session.
    """
    block = resolved.config.tool_call_loop
    tiers = block.tiers(model, session, tool)
    settings = block.for_exchange(model, session)
    of_tool = None if tool is None else settings.for_tool(tool)
    config = resolved.config.model_copy(update={"tool_call_loop": of_tool.settings if of_tool else settings})
    for key in reference():
        if key.section or key.path[-1] in ("per_tool", "models"):
            continue
        tier = origin(".".join(key.path[1:]), tiers) if key.path[0] == "tool_call_loop" else None
        yield _row(resolved, key.path, value_at(config, key.path), tier)
    if of_tool:
        for name, otherwise in TOOL_KEYS.items():
            value = getattr(of_tool, name)
            tier = origin(name, tiers)
            row = _row(resolved, ("tool_call_loop", name if tier else otherwise), value, tier)
            yield replace(row, key=f"tool_call_loop.{name}", value=sorted(value) if name == "ignore" else value)


def as_json(rows: Iterable[EffectiveSetting]) -> str:
    """Format the rows as one JSON list of objects with key, value, tier and source."""
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False)


def as_text(value: Any) -> str:
    """Format a value as in a file, on one line."""
    return value if isinstance(value, str) and value.isprintable() and value else json.dumps(value)


def value_at(value: Any, path: KeyPath) -> Any:
    """Return the value at a path, as in a file, but without credentials."""
    for name in path:
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return masked(value) if value is not None and is_secret(path) else as_plain_masked(value)


def as_plain_masked(value: Any) -> Any:
    """Convert as `as_plain` does, and mask the credentials in URLs."""
    value = as_plain(value)
    if isinstance(value, list):
        return [as_plain_masked(item) for item in value]
    if isinstance(value, dict):
        return {key: as_plain_masked(below) for key, below in value.items()}
    return without_credentials(value) if isinstance(value, str) and "://" in value else value


def _row(resolved: Resolved, path: KeyPath, value: Any, tier: str | None) -> EffectiveSetting:
    place = path
    if tier and tier.startswith(SESSION):
        return EffectiveSetting(dotted_name(path), value, tier, COMMAND)
    if tier:
        of_mode, by_preset, _ = tier.partition(BY_PRESET)
        section, _, name = of_mode.partition(" ")
        below = ("mode",) if by_preset else path[1:]
        if section == "per_tool" and below == ("max_calls_of_tool",):
            below = ("max_calls",)
        place = ("tool_call_loop", section, name, *below)
    source = resolved.sources.get(place, "")
    return EffectiveSetting(dotted_name(path), value, tier or (SERVER if source else DEFAULT), source)
