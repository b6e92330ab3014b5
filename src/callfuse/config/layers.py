"""Read one source of settings into a layer: the leaves of a nested mapping by path, each with its origin.

Layers override each other leaf by leaf, so a source holds only what it changes. Only keys are checked here: an unknown
one, or a value where further keys belong, is a problem of its layer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from callfuse.config.model import Config, KeyPath, dotted, entry_of, item_name, item_of, keys, section_of
from callfuse.config.wording import shown
from callfuse.policy.nearest import nearest
from callfuse.policy.sections import ModelSettings

OTHER_SPELLINGS: dict[KeyPath, KeyPath] = {
    ("tool_call_loop", "similarity", "threshold"): ("tool_call_loop", "similarity_threshold"),
}
"""Keys that may also be written in another place."""
OF_MODELS = {f"tool_loop_detection_{key}": key for key in ("enabled", "max_repeats", "ttl_seconds", "mode")}
"""Keys of a model that may also have another name."""
OF_OTHERS = {
    "agents": "requests do not say which agent sends them; what differs stands under tool_call_loop.per_tool or "
    "tool_call_loop.models, or comes in headers of the agent's own, such as x-callfuse-enabled: false, where "
    "tool_call_loop.header_overrides allows them; their custom_message is tool_call_loop.error_messages.guidance",
    "custom_message": "did you mean tool_call_loop.error_messages.guidance?",
    "token": "use the environment variable CALLFUSE_ADMIN_TOKEN",
    "tool_loop_detection": "did you mean tool_call_loop?",
}
"""Keys of other guards, and what to use here."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as its source gives it; `source` says where (`callfuse.yaml, line 4`), `within` does for keys in it."""

    value: object
    source: str
    within: Callable[[KeyPath], str]


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one source, and one line for each problem with its keys."""

    given: dict[KeyPath, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, path: KeyPath, value: object, source: Callable[[KeyPath], str], at: KeyPath | None = None) -> None:
        """Keep the value of a key; `at` is where it is written, if that is another place."""
        at = at or path
        if path in self.given and self.given[path].value != value:
            places = f"{self.given[path].source}; {source(at)}"
            self.problems.append(f"{dotted(path)}: given twice ({places}); keep one")
        self.given[path] = Given(value, source(at), source)


def layer_of(mapping: Mapping[Any, object], source: Callable[[KeyPath], str]) -> Layer:
    """Read a mapping in the shape of the file; `source` describes where a key is written."""
    layer = Layer()
    _read(Config, mapping, (), source, layer)
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
        if path in OTHER_SPELLINGS:
            layer.put(OTHER_SPELLINGS[path], value, source, at=path)
        elif model is ModelSettings and key in OF_MODELS:
            layer.put((*above, OF_MODELS[str(key)]), value, source, at=path)
        elif not isinstance(key, str) or key not in model.model_fields:
            # The value stays out of it: under a key that nobody knows it may be anything, a token included.
            layer.problems.append(f"{dotted(path)} ({source(path)}): unknown key; {_meant(model, path)}")
        else:
            _read_value(model.model_fields[key].annotation, value, path, source, layer)


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
    elif isinstance(value, bool) and "enabled" in section.model_fields:  # `commands: off`
        layer.put((*path, "enabled"), value, source, at=path)
    elif value is not None:  # a section whose every line is commented out reads as null
        below = ", ".join(section.model_fields)
        switch = ", or true or false" if "enabled" in section.model_fields else ""
        layer.problems.append(
            f"{dotted(path)} = {shown(value)} ({source(path)}): use a mapping with keys of its own ({below}){switch}"
        )


def _read_items(
    item: type[BaseModel], values: Sequence[object], path: KeyPath, source: Callable[[KeyPath], str], layer: Layer
) -> None:
    """The keys of mappings in a list. The list is one value: no source changes a part of another's."""
    judged = Layer()
    for at, value in enumerate(values):
        if isinstance(value, Mapping):
            _read(item, value, (*path, item_name(at)), source, judged)
    layer.problems.extend(judged.problems)


def _read_entries(
    entry: type[BaseModel], value: object, path: KeyPath, source: Callable[[KeyPath], str], layer: Layer
) -> None:
    """The entries of a section whose keys are names of the user's."""
    if not isinstance(value, Mapping):
        if value is not None:
            layer.problems.append(f"{dotted(path)} = {shown(value)} ({source(path)}): use a mapping of names")
        return
    for name, own in value.items():
        place = (*path, str(name))
        if isinstance(own, Mapping):
            _read(entry, own, place, source, layer)
        else:
            below = ", ".join(entry.model_fields)
            layer.problems.append(f"{dotted(place)} = {shown(own)} ({source(place)}): use a mapping ({below})")


def _meant(model: type[BaseModel], path: KeyPath) -> str:
    """The nearest key: that of another guard's, else one of the same name in another section, else the most alike
    beside it, else the most alike anywhere, else all of them."""
    if path[-1] in OF_OTHERS:
        return OF_OTHERS[path[-1]]
    places = {leaf[-1]: leaf for leaf, _ in reversed(list(keys()))}
    if path[-1] in places:
        return f"did you mean {dotted(places[path[-1]])}?"
    here = [*model.model_fields, *(other[-1] for other in OTHER_SPELLINGS if other[:-1] == path[:-1])]
    if near := nearest(path[-1], here):
        return f"did you mean {dotted((*path[:-1], near))}?"
    if near := nearest(path[-1], places, typo_only=True):
        return f"did you mean {dotted(places[near])}?"
    return f"the keys here are {', '.join(model.model_fields)}"
