"""Which settings hold: per-tool session > session > per-tool > backend and model > server > defaults.

A tier is a name and the values that it sets. Tiers go in from the lowest, one set of effective values comes out, and
the tier that each of them is from.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from callfuse.policy.sections import TierSettings

SESSION: Final = "session"
"""How the names of the tiers begin that a session has set."""


class Tier(NamedTuple):
    """One tier: its name for people, and what it sets."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a session has set for itself: values by key, and by tool."""

    values: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values or self.tools)

    def without(self, keys: Collection[str]) -> "Overrides":
        """All but these keys."""
        tools = {name: _without(keys, values) for name, values in self.tools.items()}
        return Overrides(_without(keys, self.values), tools)


def _without(keys: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def of_model(model: str, entries: Mapping[str, TierSettings]) -> Iterator[Tier]:
    """The entries whose globs match backend and model, as one text; the longer a pattern, the higher its tier."""
    return _matching("models", {model.lower()}, entries)


def of_tool(tool: str, entries: Mapping[str, TierSettings]) -> Iterator[Tier]:
    """The entries whose globs match a tool, as in `matches`; the longer a pattern, the higher its tier."""
    return _matching("per_tool", _names(tool), entries)


def matches(tool: str, patterns: Iterable[str]) -> bool:
    """Whether a tool is one of these globs, in any case; with its namespace (before a dot) or without."""
    return _is_one(_names(tool), patterns)


def _matching(kind: str, names: Collection[str], entries: Mapping[str, TierSettings]) -> Iterator[Tier]:
    for pattern in sorted(entries, key=len):
        if _is_one(names, (pattern,)):
            yield Tier(f"{kind} {pattern}", given(entries[pattern]))


def _names(tool: str) -> set[str]:
    return {tool.lower(), tool.lower().rpartition(".")[2]}


def _is_one(names: Collection[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(one, pattern.lower()) for pattern in patterns for one in names)


def given(section: BaseModel) -> dict[str, Any]:
    """What a section of a tier sets."""
    return {key: value for key, value in section if value is not None}


def merged(base: BaseModel, tiers: Iterable[Tier]) -> dict[str, Any]:
    """What the tiers change in `base`, the lowest tier first; sections are merged key by key."""
    values: dict[str, Any] = {}
    for tier in tiers:
        for key, value in tier.values.items():
            before = values.get(key, getattr(base, key, None))
            if isinstance(value, BaseModel) and isinstance(before, BaseModel):
                values[key] = before.model_copy(update=given(value))
            else:
                values[key] = value
    return values


def origin(key: str, tiers: Iterable[Tier]) -> str | None:
    """The name of the highest tier that sets a key (`detectors.cycle` for a key within a section); None where none
    does."""
    section, _, inner = key.partition(".")
    found = None
    for tier in tiers:
        value = tier.values.get(section)
        if section in tier.values and (not inner or not isinstance(value, BaseModel) or inner in given(value)):
            found = tier.name
    return found
