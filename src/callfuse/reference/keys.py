"""List every key of the configuration with its description, for `config init`, the JSON schema and docs/settings.md.

The descriptions are the docstrings below the fields of the settings classes.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from callfuse.config.environment import variables
from callfuse.config.model import Config, KeyPath, keys, section_of
from callfuse.detect.registry import KINDS, PARTS
from callfuse.policy.presets import mode_name
from callfuse.policy.sections import Detectors, cap_key
from callfuse.policy.settings import LoopSettings


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its field, its description, and its environment variable (empty if there is none)."""

    path: KeyPath
    field: FieldInfo
    text: str
    variable: str

    @property
    def section(self) -> type[BaseModel] | None:
        """The settings class of a section; None for a leaf."""
        return section_of(self.field.annotation)

    @property
    def default(self) -> Any:
        """The default as in a file."""
        return as_plain(self.field.get_default(call_default_factory=True))


def reference() -> Iterator[Key]:
    """Yield every key, including sections, in the order of the classes, except keys below user-chosen names."""
    names = {path: variable for variable, path in variables().items()}
    models: dict[KeyPath, type[BaseModel]] = {(): Config}
    for path, field in keys():
        text = descriptions(models[path[:-1]]).get(path[-1], "")
        if section := section_of(field.annotation):
            models[path] = section
            text = text or inspect.cleandoc(section.__doc__ or "")
        yield Key(path, field, text, names.get(path, ""))


@cache
def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a class; for limits, the text of the detector.

    Keys of tiers have the descriptions of the same keys in `LoopSettings`.
    """
    words: dict[str, str] = {}
    if model not in (LoopSettings, Detectors):
        words |= descriptions(LoopSettings) | descriptions(Detectors)
    for one in reversed(model.__mro__):
        if issubclass(one, BaseModel) and one is not BaseModel:
            words |= dict(_below_fields(one))
    if model is Detectors:
        for name, kind in KINDS.items():
            words[name] = kind.limit.about if kind.limit else kind.about
            words |= {cap_key(name, part.name): part.about for part in PARTS[name].values()}
            words[cap_key(name)] = f"The strictest rung for findings of `{name}`; `none` means `block`."
            words[cap_key(name, "most_hard")] = "The same from its hard limit on; if not set, as below it."
    return {key: words[key] for key in model.model_fields if key in words}


def _below_fields(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    body = _classes(model.__module__).get(model.__name__, [])
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                yield name, inspect.cleandoc(text)


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """Return the bodies of a module's classes, by name. From Python 3.13 on, `inspect` finds no source for a class made
    by `create_model`, although its base class has the same name."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {one.name: one.body for one in tree.body if isinstance(one, ast.ClassDef)}


def as_plain(value: Any) -> Any:
    """Convert a value to the plain types of a file; a ladder to the name of its mode if it has one."""
    if isinstance(value, tuple) and (mode := mode_name(value)):
        return mode
    if isinstance(value, tuple | list):
        return [as_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: as_plain(below) for key, below in value.items()}
    if isinstance(value, BaseModel):
        return {key: as_plain(below) for key, below in value if below is not None}
    return str(value) if isinstance(value, str) else value
