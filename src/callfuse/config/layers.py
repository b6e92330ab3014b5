"""Flatten one source of settings into a layer: values by key path, each with its source.

Layers override each other key by key, so a source holds only what it changes. Only keys are checked here: an unknown
key, or a value in place of a section, is a problem of the layer. `Config` validates the values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from callfuse.config.model import Config, KeyPath, dotted_name, entry_of, item_name, item_of, keys, section_of
from callfuse.config.versions import CURRENT, KEY, RENAMED, renamed, version_problem
from callfuse.config.wording import format_value
from callfuse.detect.registry import KINDS
from callfuse.policy.fields import SWITCHES
from callfuse.policy.nearest import nearest
from callfuse.policy.sections import LONG_FORMS, Detectors, SomeDetectors

_LAPS = "a cycle has 2 to 5 rounds; tool_call_loop.detectors.cycle sets how many laps are a finding"
FOREIGN_KEYS = {
    "actions": "did you mean tool_call_loop.mode? It may be a list of rungs, as in [warn, warn, block]",
    "agents": "requests do not say which agent sends them; use tool_call_loop.per_tool or tool_call_loop.models, or "
    "let the agent send headers such as x-callfuse-enabled: false (needs tool_call_loop.header_overrides); "
    "custom_message is tool_call_loop.error_messages.guidance",
    "custom_messages": "did you mean tool_call_loop.error_messages?",
    "custom_message": "did you mean tool_call_loop.error_messages.guidance?",
    "loop_detection": "did you mean tool_call_loop?",
    "max_duplicates": "did you mean tool_call_loop.max_repeats? It also counts the pending call, so use one more",
    "max_pattern_length": _LAPS,
    "min_pattern_length": _LAPS,
    "min_pattern_repetitions": "did you mean tool_call_loop.detectors.cycle?",
    "on_loop_detected": "did you mean on_loop? It is a keyword of CallFuseMiddleware and LoopDetector, not a setting",
    "token": "use the environment variable CALLFUSE_ADMIN_TOKEN",
    "tool_loop_detection": "did you mean tool_call_loop?",
    "window_size": "did you mean tool_call_loop.window?",
}
"""Keys of other products, each with the key to use here."""


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """An unvalidated value. `source` is its place (`callfuse.yaml, line 4`); `within` returns that of a path inside."""

    value: object
    source: str
    within: Callable[[KeyPath], str]


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one source by key path, with a line for each problem and each warning."""

    values: dict[KeyPath, SourcedValue] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    version: int = 0
    """The version that the source declares; 0 if it declares none."""

    def put(self, path: KeyPath, value: object, source: Callable[[KeyPath], str], at: KeyPath | None = None) -> None:
        """Set the value of a key. `at`: the path as it is written in the source, if it differs."""
        at = at or path
        if path in self.values and self.values[path].value != value:
            places = f"{self.values[path].source}; {source(at)}"
            self.problems.append(f"{dotted_name(path)}: given twice ({places}); keep one")
        self.values[path] = SourcedValue(value, source(at), source)


def layer_of(mapping: Mapping[Any, object], source: Callable[[KeyPath], str]) -> Layer:
    """Read a mapping in the shape of the file; `source` returns the place of a key path, for messages."""
    if KEY not in mapping:
        layer = Layer()
    elif problem := version_problem(mapping[KEY], source((KEY,))):
        return Layer(problems=[problem])
    else:
        layer = Layer(version=CURRENT)
    _read(Config, {key: value for key, value in mapping.items() if key != KEY}, (), source, layer)
    return layer


def _read(
    model: type[BaseModel],
    mapping: Mapping[object, object],
    above: KeyPath,
    source: Callable[[KeyPath], str],
    layer: Layer,
) -> None:
    for key, value in mapping.items():
        path = (*above, str(key))
        if old := renamed(path):
            _read_renamed(old, value, path, source, layer)
        elif not isinstance(key, str) or key not in model.model_fields:
            # Without the value: an unknown key may hold a token.
            layer.problems.append(f"{dotted_name(path)} ({source(path)}): unknown key; {_suggest_key(model, path)}")
        elif isinstance(value, Mapping) and key in LONG_FORMS and model in (Detectors, SomeDetectors):
            _read_long_form(key, value, path, source, layer)
        else:
            _read_value(model.model_fields[key].annotation, value, path, source, layer)


def _read_renamed(
    old: tuple[int, KeyPath], value: object, path: KeyPath, source: Callable[[KeyPath], str], layer: Layer
) -> None:
    """Read the value of a key with a name of an older version, if the source's version allows that name."""
    version, own = old
    written, place = dotted_name(path), source(path)
    if layer.version >= version:
        right = f"since version {version} it is {dotted_name(own)}"
        layer.problems.append(f"{written} ({place}): unknown key; {right}")
        return
    layer.put(own, value, source, at=path)
    layer.warnings.append(
        f"{written} ({place}): renamed to {dotted_name(own)} in version {version} of the settings file, and read as "
        f"that; rename it and set `{KEY}: {CURRENT}`"
    )


def _read_value(
    annotation: object, value: object, path: KeyPath, source: Callable[[KeyPath], str], layer: Layer
) -> None:
    section = section_of(annotation)
    if entry := entry_of(annotation):
        _read_entries(entry, value, path, source, layer)
    elif section is None:
        layer.put(path, value, source)
        if (item := item_of(annotation)) and isinstance(value, list | tuple):
            _read_items(item, value, path, source, layer)
    elif isinstance(value, Mapping):
        _read(section, value, path, source, layer)
    elif "enabled" in section.model_fields and _is_switch(value):  # `commands: off`
        layer.put((*path, "enabled"), value, source, at=path)
    elif value is not None:  # a section with all lines commented out is null
        below = ", ".join(section.model_fields)
        switch = ", or true or false" if "enabled" in section.model_fields else ""
        place = f"{dotted_name(path)} = {format_value(value)} ({source(path)})"
        layer.problems.append(f"{place}: use a mapping with the keys {below}{switch}")


def _read_long_form(
    kind: str, value: Mapping[object, object], path: KeyPath, source: Callable[[KeyPath], str], layer: Layer
) -> None:
    """Read the settings of a kind of loop, key by key: `same_error: {limit: 4, most: warn}`."""
    names = LONG_FORMS[kind]
    limited_by = KINDS[kind].limited_by
    hint = f"; the limit of {kind} is {limited_by}" if limited_by else ""
    for name, own in value.items():
        at = (*path, str(name))
        if name in names:
            layer.put((*path[:-1], names[str(name)]), own, source, at=at)
            continue
        here = f"the keys here are {', '.join(names)}{hint}"
        layer.problems.append(f"{dotted_name(at)} ({source(at)}): unknown key; {here}")


def _is_switch(value: object) -> bool:
    """Whether a value is on or off, also as a text: TOML and JSON have no such words, and YAML may quote them."""
    return isinstance(value, bool) or (isinstance(value, str) and value.lower() in SWITCHES)


def _read_items(
    item: type[BaseModel], values: Sequence[object], path: KeyPath, source: Callable[[KeyPath], str], layer: Layer
) -> None:
    """Check the keys of mappings in a list. The list itself is one value, which sources override as a whole."""
    judged = Layer()
    for at, value in enumerate(values):
        if isinstance(value, Mapping):
            _read(item, value, (*path, item_name(at)), source, judged)
    layer.problems.extend(judged.problems)


def _read_entries(
    entry: type[BaseModel], value: object, path: KeyPath, source: Callable[[KeyPath], str], layer: Layer
) -> None:
    """Read a section whose keys are names that users choose, such as tools."""
    if not isinstance(value, Mapping):
        if value is not None:
            layer.problems.append(
                f"{dotted_name(path)} = {format_value(value)} ({source(path)}): use a mapping of names"
            )
        return
    for name, own in value.items():
        place = (*path, str(name))
        if isinstance(own, Mapping):
            _read(entry, own, place, source, layer)
        else:
            below = ", ".join(entry.model_fields)
            layer.problems.append(
                f"{dotted_name(place)} = {format_value(own)} ({source(place)}): use a mapping ({below})"
            )


def _suggest_key(model: type[BaseModel], path: KeyPath) -> str:
    """Suggest a key for an unknown one: one for a key of another product, one of the same name in another section, a
    similar one in this section or anywhere; else list all keys of this section."""
    if path[-1] in FOREIGN_KEYS:
        return FOREIGN_KEYS[path[-1]]
    places = {leaf[-1]: leaf for leaf, _ in reversed(list(keys()))}
    if path[-1] in places:
        return f"did you mean {dotted_name(places[path[-1]])}?"
    old = {name[-1]: dotted_name(own) for name, (_, own) in RENAMED.items() if name[:-1] == path[:-1]}
    if near := nearest(path[-1], [*model.model_fields, *old]):
        return f"did you mean {old[near]}?" if near in old else f"did you mean {dotted_name((*path[:-1], near))}?"
    if near := nearest(path[-1], places, typo_only=True):
        return f"did you mean {dotted_name(places[near])}?"
    return f"the keys here are {', '.join(model.model_fields)}"
