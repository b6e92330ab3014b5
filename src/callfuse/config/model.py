"""The whole configuration as one validated value, and its keys as paths.

A key's path is the tuple of its names from the top: `("tool_call_loop", "max_repeats")`. A *leaf* is a key that
holds a value, a *section* one that holds further keys. Every source speaks of keys by path, so that a field added
to a settings class is known to all of them by existing.
"""

from collections.abc import Iterator
from typing import TypeGuard, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from callfuse.policy.settings import LoopSettings, Strict
from callfuse.proxy.settings import ServeSettings

KeyPath = tuple[str, ...]


class Config(Strict):
    """Everything that is set at start, one field a top-level block of the file."""

    tool_call_loop: LoopSettings = LoopSettings()
    serve: ServeSettings = ServeSettings()


def is_section(annotation: object) -> TypeGuard[type[BaseModel]]:
    """Whether a field of this type holds keys of its own."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def entry_of(annotation: object) -> type[BaseModel] | None:
    """What each entry of a field holds whose keys are names of the user's (tools, models); else None."""
    arguments = get_args(annotation)
    return arguments[1] if get_origin(annotation) is dict and is_section(arguments[1]) else None


def leaves(model: type[BaseModel] = Config, above: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Every leaf below `model`, in the order of the classes; none below names of the user's."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        if is_section(field.annotation):
            yield from leaves(field.annotation, path)
        elif entry_of(field.annotation) is None:
            yield path, field


def field_at(path: KeyPath) -> FieldInfo:
    """The field of a leaf, below names of the user's, too."""
    model: type[BaseModel] = Config
    steps = iter(path)
    for name in steps:
        field = model.model_fields[name]
        entry = entry_of(field.annotation)
        if entry is not None:
            model = entry
            next(steps, None)
        elif is_section(field.annotation):
            model = field.annotation
    return field


def dotted(path: KeyPath) -> str:
    """A key as people write it: `tool_call_loop.max_repeats`."""
    return ".".join(path)
