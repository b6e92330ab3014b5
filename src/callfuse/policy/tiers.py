"""Merge tiers of settings: per-tool session > session > per-tool > backend and model > server > defaults.

A tier is a name and the values that it sets. `merge_tiers` takes them from the lowest and returns the effective
values; `origin` returns the tier that sets a key.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from callfuse.policy.presets import Preset
from callfuse.policy.sections import SomeDetectors, TierSettings

SESSION: Final = "session"
"""The beginning of the names of tiers that a session has set."""


BY_PRESET: Final = ", preset "
"""In the name of a tier that a preset adds: the text between the setting tier's name and the preset's name."""


class Tier(NamedTuple):
    """One tier: its name, for people, and the values that it sets, by key."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Overrides:
    """The values that a session has set for itself: by key, and by tool."""

    values: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values or self.tools)

    @property
    def written(self) -> str:
        """The values that are set, as a text, which is equal for equal values."""
        return repr((_written(self.values), _written(self.tools)))

    def without(self, keys: Collection[str]) -> "Overrides":
        """Return a copy without these keys."""
        tools = {name: _without(keys, values) for name, values in self.tools.items()}
        return Overrides(_without(keys, self.values), tools)


def _written(value: object) -> object:
    """Return a form of a value whose `repr` contains only what was set."""
    if isinstance(value, BaseModel):
        value = explicit_values(value)
    return [(key, _written(one)) for key, one in value.items()] if isinstance(value, Mapping) else value


def _without(keys: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def model_tiers(model: str, entries: Mapping[str, TierSettings]) -> Iterator[Tier]:
    """Yield the entries whose globs match `backend:model`, lowest first: the longer the pattern, the higher."""
    return _matching("models", {model.lower()}, entries)


def tool_tiers(tool: str, entries: Mapping[str, TierSettings]) -> Iterator[Tier]:
    """Yield the entries whose globs match a tool, as in `matches`, lowest first: the longer the pattern, the higher."""
    return _matching("per_tool", _names(tool), entries)


def matches(tool: str, patterns: Iterable[str]) -> bool:
    """Whether a tool matches one of these globs, in any case; with its namespace (before a dot) or without."""
    return _is_one(_names(tool), patterns)


def _matching(kind: str, names: Collection[str], entries: Mapping[str, TierSettings]) -> Iterator[Tier]:
    for pattern in sorted(entries, key=len):
        if _is_one(names, (pattern,)):
            yield Tier(f"{kind} {pattern}", explicit_values(entries[pattern]))


def _names(tool: str) -> set[str]:
    return {tool.lower(), tool.lower().rpartition(".")[2]}


def _is_one(names: Collection[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(one, pattern.lower()) for pattern in patterns for one in names)


def explicit_values(section: BaseModel) -> dict[str, Any]:
    """Return the values that a section of a tier sets: those that are not None."""
    return {key: value for key, value in section if value is not None}


def with_presets(tiers: Iterable[Tier]) -> Iterator[Tier]:
    """Yield the tiers; below each tier whose mode is a preset, yield another tier with the preset's values."""
    for tier in tiers:
        mode = tier.values.get("mode")
        if isinstance(mode, Preset):
            values = {**mode.sets, "detectors": SomeDetectors.model_validate(mode.sets["detectors"])}
            yield Tier(f"{tier.name}{BY_PRESET}{mode.name}", values)
        yield tier


def merge_tiers(base: BaseModel, tiers: Iterable[Tier]) -> dict[str, Any]:
    """Return the changes that the tiers, lowest first, make to `base`. Sections are merged key by key."""
    values: dict[str, Any] = {}
    for tier in tiers:
        for key, value in tier.values.items():
            before = values.get(key, getattr(base, key, None))
            if isinstance(value, BaseModel) and isinstance(before, BaseModel):
                values[key] = before.model_copy(update=explicit_values(value))
            else:
                values[key] = value
    return values


def origin(key: str, tiers: Iterable[Tier]) -> str | None:
    """Return the name of the highest tier that sets a key (`detectors.cycle`: a key of a section), or None."""
    section, _, inner = key.partition(".")
    found = None
    for tier in tiers:
        value = tier.values.get(section)
        if section in tier.values and (
            not inner or not isinstance(value, BaseModel) or inner in explicit_values(value)
        ):
            found = tier.name
    return found
