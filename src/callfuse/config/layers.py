"""One source of settings as a layer: a nested mapping goes in, its leaves by path come out, each with its origin.

Layers are laid over each other leaf by leaf, so a source says only what it changes. Nothing is judged here but the
keys: an unknown one, or a value where further keys belong, is a problem of its layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from callfuse.config.model import Config, KeyPath, dotted, entry_of, is_section, leaves
from callfuse.config.wording import nearest, shown


@dataclass(frozen=True, slots=True)
class Given:
    """A value as its source gave it, and the source in words: `callfuse.yaml, line 4`."""

    value: object
    source: str


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says, and what is wrong with its keys, a line each."""

    given: dict[KeyPath, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def layer_of(mapping: Mapping[object, object], source: Callable[[KeyPath], str]) -> Layer:
    """The layer of a mapping in the shape of the file; `source` puts the place of a key into words."""
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
        if not isinstance(key, str) or key not in model.model_fields:
            # The value stays out of it: under a key that nobody knows it may be anything, a token included.
            layer.problems.append(f"{dotted(path)} ({source(path)}): unknown key; {_meant(model, path)}")
            continue
        section = model.model_fields[key].annotation
        if entry := entry_of(section):
            _read_entries(entry, value, path, source, layer)
        elif not is_section(section):
            layer.given[path] = Given(value, source(path))
        elif isinstance(value, Mapping):
            _read(section, value, path, source, layer)
        elif value is not None:  # a section whose every line is commented out reads as null
            keys = ", ".join(section.model_fields)
            layer.problems.append(
                f"{dotted(path)} = {shown(value)} ({source(path)}): use a mapping with keys of its own ({keys})"
            )


def _read_entries(
    entry: type[BaseModel], value: object, path: KeyPath, source: Callable[[KeyPath], str], layer: Layer
) -> None:
    """The entries of a section whose keys are names of the user's."""
    if not isinstance(value, Mapping):
        if value is not None:
            layer.problems.append(f"{dotted(path)} = {shown(value)} ({source(path)}): use a mapping of names")
        return
    for name, own in value.items():
        if isinstance(own, Mapping):
            _read(entry, own, (*path, str(name)), source, layer)
        else:
            keys = ", ".join(entry.model_fields)
            place = (*path, str(name))
            layer.problems.append(f"{dotted(place)} = {shown(own)} ({source(place)}): use a mapping ({keys})")


def _meant(model: type[BaseModel], path: KeyPath) -> str:
    """The nearest key: one of the same name in another section, else the most alike beside it, else all of them."""
    elsewhere = [dotted(leaf) for leaf, _ in leaves() if leaf[-1] == path[-1]]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    if near := nearest(path[-1], list(model.model_fields)):
        return f"did you mean {dotted((*path[:-1], near))}?"
    return f"the keys here are {', '.join(model.model_fields)}"
