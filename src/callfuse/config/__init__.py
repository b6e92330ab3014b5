"""Load the configuration: a keyword, the environment and a file become one validated `Config`.

A keyword wins over the environment and the environment over the file, key by key; the options of the command line
win over all. Whatever is wrong raises one `ConfigError` with a line for each problem: the key with its full path,
the value (never a credential), where it was given, and what would be right.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from callfuse.config.environment import CONFIG_FILE, from_environment
from callfuse.config.files import read_file
from callfuse.config.layers import Given, Layer, layer_of
from callfuse.config.model import Config, KeyPath, dotted, field_at, item_name, item_of
from callfuse.config.wording import right, shown, without_credentials
from callfuse.errors import ConfigError
from callfuse.policy.nearest import nearest

__all__ = ["Config", "Resolved", "Source", "load_config", "resolve", "with_store", "without_credentials", "wrong_model"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration, and where each value that is not a default was given: `callfuse.yaml, line 4`."""

    config: Config
    sources: Mapping[KeyPath, str]


Source = Config | Resolved | Mapping[str, Any] | str | os.PathLike[str]


def load_config(
    source: Source | None = None,
    env: Mapping[str, str] | None = None,
    *,
    options: Mapping[str, object] | None = None,
) -> Config:
    """Load the configuration from every source. ConfigError has one line for each problem.

    `source` is a mapping in the shape of the file, the path of a file (then `CALLFUSE_CONFIG` is not read), or a
    `Config` or `Resolved`, which is taken as it is. `env` defaults to `os.environ`. `options` are those of the command
    line, in the shape of the file; one that is None was not given.
    """
    return source if isinstance(source, Config) else resolve(source, env, options=options).config


def resolve(
    source: Source | None = None,
    env: Mapping[str, str] | None = None,
    *,
    options: Mapping[str, object] | None = None,
) -> Resolved:
    """Load the configuration as `load_config` does, with the source of each value."""
    if isinstance(source, Resolved):
        return source
    if isinstance(source, Config):
        return Resolved(source, _sources(layer_of(source.model_dump(exclude_unset=True), _keyword).given))
    layers = _layers(source, os.environ if env is None else env, options or {})
    given = {path: value for layer in layers for path, value in layer.given.items()}
    problems = [problem for layer in layers for problem in layer.problems]
    try:
        config = Config.model_validate(_nested(given))
        problems += [*_without_backend(config, given), *_shadowed(config, given)]
    except ValidationError as error:
        problems += _in_words(error, given)
    if problems:
        raise ConfigError("\n".join(problems))
    return Resolved(config, _sources(given))


def with_store(resolved: Resolved, store: str) -> Resolved:
    """Set the store that a keyword names. Raises ConfigError for a wrong one."""
    named = resolve({"store": store}, {})
    config = resolved.config.model_copy(update={"store": named.config.store})
    return Resolved(config, {**resolved.sources, **named.sources})


def _sources(given: Mapping[KeyPath, Given]) -> dict[KeyPath, str]:
    return {path: value.source for path, value in given.items()}


def _keyword(_: KeyPath) -> str:
    return "keyword"


def _layers(source: object, env: Mapping[str, str], options: Mapping[str, object]) -> list[Layer]:
    """Read every source, the weakest first."""
    layers = []
    given_file = source if isinstance(source, str | os.PathLike) else ""
    if file := given_file or env.get(CONFIG_FILE, "").strip():
        layers.append(read_file(file))
    layers.append(from_environment(env))
    if isinstance(source, Mapping):
        layers.append(layer_of(source, _keyword))
    elif source is not None and not given_file:
        layers.append(Layer(problems=[f"config = {shown(source)} (keyword): use a mapping or the path of a file"]))
    layers.append(layer_of(_without_none(options), lambda path: f"option --{path[-1].replace('_', '-')}"))
    return layers


def _without_none(options: Mapping[str, object]) -> dict[str, object]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in options.items()
        if value is not None
    }


def _nested(given: Mapping[KeyPath, Given]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in given.items():
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = value.value
    return tree


def _without_backend(config: Config, given: Mapping[KeyPath, Given]) -> Iterator[str]:
    """Yield a line for each glob over models that matches no backend."""
    above = ("tool_call_loop", "models")
    for pattern in config.tool_call_loop.models:
        plain = re.split(r"[*?[]", pattern.lower(), maxsplit=1)[0]  # what every model that it matches begins with
        starts = [f"{backend.lower()}:" for backend in config.backends]
        if not any(start.startswith(plain) or plain.startswith(start) for start in starts):
            place = (*above, pattern)
            source = next(value.within(place) for path, value in given.items() if path[: len(place)] == place)
            yield f"{dotted(place)} ({source}): matches no model; {_backend_meant(pattern, config)}"


def _shadowed(config: Config, given: Mapping[KeyPath, Given]) -> Iterator[str]:
    """Yield a line for each route whose requests would all go to the admin path."""
    path = ("admin", "path")
    source = given[path].source if path in given else "default"
    for at, route in enumerate(config.serve.routes) if config.admin.enabled else ():
        if config.admin.holds(route.path):
            which = f"serve.routes[{at}].path = {shown(route.path)}"
            yield f"admin.path = {shown(config.admin.path)} ({source}): nothing would reach {which}; use another path"


def wrong_model(model: str, config: Config) -> str | None:
    """Say what is wrong with backend and model as one text; None if there is such a backend."""
    if model.partition(":")[0].lower() in map(str.lower, config.backends):
        return None
    return f"there is no such backend; {_backend_meant(model, config)}"


def _backend_meant(model: str, config: Config) -> str:
    """How a model of no known backend, or a glob over some, should begin."""
    backend, mark, name = model.partition(":")
    if not mark:
        return f"use backend and model, as in openai:{model}"
    near = nearest(backend, config.backends)
    return f"did you mean {near}:{name}?" if near else f"the backends are {', '.join(config.backends)}"


def _in_words(error: ValidationError, given: Mapping[KeyPath, Given]) -> list[str]:
    """One line for each value that did not pass validation."""
    problems: dict[KeyPath, str] = {}
    for wrong in error.errors(include_url=False):
        place = tuple(item_name(name) if isinstance(name, int) else name for name in wrong["loc"])
        top = next(path for path in given if path == place[: len(path)])
        is_list = item_of(field_at(top).annotation) is not None
        if is_list and wrong["type"] == "extra_forbidden":
            continue  # the layers have said so
        path = place if is_list else top
        value = shown(_at(given[top].value, path[len(top) :]))
        source = given[top].source if path == top else given[top].within(path)
        problems.setdefault(path, f"{dotted(path)} = {value} ({source}): {right(wrong, field_at(path))}")
    return list(problems.values())


def _at(value: Any, path: KeyPath) -> object:
    """The value at a path below a value; None if it is missing."""
    for name in path:
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list | tuple):
            value = value[int(name[1:-1])]
    return value
