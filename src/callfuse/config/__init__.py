"""Load the configuration: merge file, environment, keyword and command line into one validated `Config`.

For each key, a keyword wins over the environment, the environment over the file, and an option of the command line over
all. All problems are raised as one `ConfigError` with a line for each: the full path of the key, the value (never a
credential), its source, and what is allowed.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError

from callfuse.config.environment import CONFIG_FILE, from_environment
from callfuse.config.files import read_file
from callfuse.config.layers import Layer, SourcedValue, layer_of
from callfuse.config.model import Config, KeyPath, dotted_name, field_at, is_secret, item_name, item_of
from callfuse.config.wording import describe_fix, format_value, masked, without_credentials
from callfuse.errors import ConfigError
from callfuse.model.timeline import MIN_WINDOW_CALLS
from callfuse.policy.fields import preset_of
from callfuse.policy.nearest import nearest
from callfuse.policy.settings import LoopSettings

__all__ = [
    "Config",
    "Resolved",
    "Source",
    "load_config",
    "model_problem",
    "resolve",
    "with_store",
    "without_credentials",
]


logger = logging.getLogger("callfuse")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration, with the source of each value that is not a default: `callfuse.yaml, line 4`."""

    config: Config
    sources: Mapping[KeyPath, str]


Source = Config | Resolved | LoopSettings | Mapping[str, Any] | str | os.PathLike[str]


def load_config(
    source: Source | None = None,
    env: Mapping[str, str] | None = None,
    *,
    options: Mapping[str, object] | None = None,
) -> Config:
    """Load the configuration from every source. Raises ConfigError with one line for each problem.

    `source` is a mapping in the shape of the file, its block `tool_call_loop` as `LoopSettings`, the path of a file
    (then `CALLFUSE_CONFIG` is not read), or a `Config` or `Resolved`, which is used as it is. `env` defaults to
    `os.environ`. `options` are those of the command line, in the shape of the file; a value of None means not given.
    """
    return source if isinstance(source, Config) else resolve(source, env, options=options).config


def resolve(
    source: Source | None = None,
    env: Mapping[str, str] | None = None,
    *,
    options: Mapping[str, object] | None = None,
) -> Resolved:
    """Load the configuration as `load_config` does, with the source of each value. Raises ConfigError."""
    if isinstance(source, Resolved):
        return source
    if isinstance(source, Config):
        return Resolved(source, _sources(layer_of(source.model_dump(exclude_unset=True), _keyword).values))
    if isinstance(source, LoopSettings):
        source = {"tool_call_loop": source.model_dump(mode="json", exclude_unset=True)}
    layers = _layers(source, os.environ if env is None else env, options or {})
    values = {path: value for layer in layers for path, value in layer.values.items()}
    problems = [problem for layer in layers for problem in layer.problems]
    warnings = [one for layer in layers for one in layer.warnings]
    try:
        config = Config.model_validate(_nest(values))
        warnings += _find_idle_window(config, values)
        problems += [*_find_unmatched_globs(config, values), *_find_shadowed_routes(config, values)]
    except ValidationError as error:
        problems += _describe_errors(error, values)
    for warning in warnings:
        _warn_once(warning)
    if problems:
        raise ConfigError("\n".join(problems))
    return Resolved(config, {**_preset_sources(values), **_sources(values)})


@cache
def _warn_once(text: str) -> None:
    """Log a warning once in each process, because the configuration is read many times."""
    logger.warning(text)


def with_store(resolved: Resolved, store: str) -> Resolved:
    """Replace the store by the URL of a keyword. Raises ConfigError if it is wrong."""
    named = resolve({"store": store}, {})
    config = resolved.config.model_copy(update={"store": named.config.store})
    return Resolved(config, {**resolved.sources, **named.sources})


def _sources(values: Mapping[KeyPath, SourcedValue]) -> dict[KeyPath, str]:
    return {path: value.source for path, value in values.items()}


def _preset_sources(values: Mapping[KeyPath, SourcedValue]) -> dict[KeyPath, str]:
    """Return the source of each value that the server's mode sets, if the mode is a preset."""
    mode = values.get(("tool_call_loop", "mode"))
    preset = preset_of(mode.value) if mode else None
    if mode is None or preset is None:
        return {}
    names: list[KeyPath] = [
        (key, inner) for key, below in preset.sets.items() if isinstance(below, Mapping) for inner in below
    ]
    names += [(key,) for key, value in preset.sets.items() if not isinstance(value, Mapping)]
    return {("tool_call_loop", *name): f"preset {preset.name}, {mode.source}" for name in names}


def _keyword(_: KeyPath) -> str:
    return "keyword"


def _layers(source: object, env: Mapping[str, str], options: Mapping[str, object]) -> list[Layer]:
    """Read every source, in increasing order of precedence."""
    layers = []
    given_file = source if isinstance(source, str | os.PathLike) else ""
    if given_file:
        layers.append(read_file(given_file))
    elif file := env.get(CONFIG_FILE, "").strip():
        layers.append(read_file(file, named_by=f"environment variable {CONFIG_FILE}"))
    layers.append(from_environment(env))
    if isinstance(source, Mapping):
        layers.append(layer_of(source, _keyword))
    elif source is not None and not given_file:
        layers.append(
            Layer(problems=[f"config = {format_value(source)} (keyword): use a mapping or the path of a file"])
        )
    layers.append(layer_of(_without_none(options), lambda path: f"option --{path[-1].replace('_', '-')}"))
    return layers


def _without_none(options: Mapping[str, object]) -> dict[str, object]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in options.items()
        if value is not None
    }


def _nest(values: Mapping[KeyPath, SourcedValue]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = value.value
    return tree


def _find_unmatched_globs(config: Config, values: Mapping[KeyPath, SourcedValue]) -> Iterator[str]:
    """Yield a problem for each glob over models that matches no backend."""
    above = ("tool_call_loop", "models")
    for pattern in config.tool_call_loop.models:
        plain = re.split(r"[*?[]", pattern.lower(), maxsplit=1)[0]  # the common prefix of all models that it matches
        starts = [f"{backend.lower()}:" for backend in config.backends]
        if not any(start.startswith(plain) or plain.startswith(start) for start in starts):
            place = (*above, pattern)
            source = next(value.within(place) for path, value in values.items() if path[: len(place)] == place)
            yield f"{dotted_name(place)} ({source}): matches no model; {_suggest_backend(pattern, config)}"


def _find_idle_window(config: Config, values: Mapping[KeyPath, SourcedValue]) -> Iterator[str]:
    """Yield a warning for a window below `MIN_WINDOW_CALLS`, which hardly has an effect."""
    path, window = ("tool_call_loop", "window"), config.tool_call_loop.window
    if path in values and window < MIN_WINDOW_CALLS:
        yield (
            f"{dotted_name(path)} = {window} ({values[path].source}): a window has at least "
            f"{MIN_WINDOW_CALLS} calls, so it is {MIN_WINDOW_CALLS} rounds if each round has one call; use "
            f"{MIN_WINDOW_CALLS} or more"
        )


def _find_shadowed_routes(config: Config, values: Mapping[KeyPath, SourcedValue]) -> Iterator[str]:
    """Yield a problem for each route below the admin path, because the admin page would get all of its requests."""
    path = ("admin", "path")
    source = values[path].source if path in values else "default"
    for at, route in enumerate(config.serve.routes) if config.admin.enabled else ():
        if config.admin.holds(route.path):
            which = f"serve.routes[{at}].path = {format_value(route.path)}"
            admin = f"admin.path = {format_value(config.admin.path)} ({source})"
            yield f"{admin}: no request would reach {which}; use another path"


def model_problem(model: str, config: Config) -> str | None:
    """Describe what is wrong with a `backend:model` text; None if the backend exists."""
    if model.partition(":")[0].lower() in map(str.lower, config.backends):
        return None
    return f"there is no such backend; {_suggest_backend(model, config)}"


def _suggest_backend(model: str, config: Config) -> str:
    """Suggest a backend for a model, or a glob over models, whose backend is unknown."""
    backend, mark, name = model.partition(":")
    if not mark:
        return f"use backend and model, as in openai:{model}"
    near = nearest(backend, config.backends)
    return f"did you mean {near}:{name}?" if near else f"the backends are {', '.join(config.backends)}"


def _describe_errors(error: ValidationError, values: Mapping[KeyPath, SourcedValue]) -> list[str]:
    """Describe validation errors, one line for each value."""
    problems: dict[KeyPath, str] = {}
    for wrong in error.errors(include_url=False):
        place = tuple(item_name(name) if isinstance(name, int) else name for name in wrong["loc"])
        top = next((path for path in values if path == place[: len(path)]), None)
        if top is None:
            problems[place] = _describe_missing(place, wrong, values)
            continue
        is_list = item_of(field_at(top).annotation) is not None
        if is_list and wrong["type"] == "extra_forbidden":
            continue  # already reported by its layer
        path = place if is_list else top
        found = _value_below(values[top].value, path[len(top) :])
        value = masked(found) if is_secret(path) else format_value(found)
        source = values[top].source if path == top else values[top].within(path)
        right = describe_fix(wrong, field_at(path), found)
        problems.setdefault(path, f"{dotted_name(path)} = {value} ({source}): {right}")
    return list(problems.values())


def _describe_missing(place: KeyPath, wrong: Mapping[str, Any], values: Mapping[KeyPath, SourcedValue]) -> str:
    """Describe a required key that is missing."""
    beside = next((one.source for path, one in values.items() if path[: len(place) - 1] == place[:-1]), "default")
    return f"{dotted_name(place)} is missing ({beside}): {describe_fix(wrong, field_at(place), None)}"


def _value_below(value: Any, path: KeyPath) -> object:
    """Return the value at a path inside a value; None if it is missing."""
    for name in path:
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list | tuple):
            value = value[int(name[1:-1])]
    return value
