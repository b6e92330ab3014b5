"""Read the environment into a layer of settings.

Every leaf of the configuration has one variable: `TOOL_LOOP_...` for the four best known keys,
`CALLFUSE_SERVE_<KEY>` for the `serve` block, and `CALLFUSE_<KEY>` for the rest (`CALLFUSE_ERROR_MESSAGES_BLOCK` for
a key within a key). A list is written with commas. An empty variable counts as not set, as compose files and shells
produce them. A `CALLFUSE_*` variable that nobody reads is a problem, and so is one of which a slip of the fingers would
make any of ours, or a `TOOL_LOOP_*` one of nothing but our words (`TOOL_LOOP_TTL`); others may be anybody's.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args, get_origin

from callfuse.config.layers import Layer
from callfuse.config.model import KeyPath, dotted, entry_of, keys, leaves
from callfuse.errors import ConfigError
from callfuse.policy.nearest import nearest

CONFIG_FILE = "CALLFUSE_CONFIG"
ADMIN_TOKEN = "CALLFUSE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_HINT = "use 16 or more characters of ASCII without blanks"  # noqa: S105 - a sentence

_PREFIX = "CALLFUSE_"
_SHORT_PREFIX = "TOOL_LOOP_"
_SHORT_NAMES: dict[KeyPath, str] = {
    ("tool_call_loop", "enabled"): "TOOL_LOOP_DETECTION_ENABLED",
    ("tool_call_loop", "max_repeats"): "TOOL_LOOP_MAX_REPEATS",
    ("tool_call_loop", "ttl_seconds"): "TOOL_LOOP_TTL_SECONDS",
    ("tool_call_loop", "mode"): "TOOL_LOOP_MODE",
}
_NOT_SETTINGS = frozenset({CONFIG_FILE, ADMIN_TOKEN, "CALLFUSE_CAPTURES"})
"""The file's own variable, the secret that no file holds, and what tells the tests where recorded bodies lie."""

# Kubernetes tells every pod of a namespace about every service in it: services called callfuse and callfuse-serve
# appear as CALLFUSE_SERVICE_HOST=10.0.0.1 and CALLFUSE_SERVE_PORT=tcp://10.0.0.1:80.
_SERVICE_LINK = re.compile(r"CALLFUSE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)_\w+)")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


@cache
def variables() -> dict[str, KeyPath]:
    """Every variable with the key that it sets."""
    return {_SHORT_NAMES.get(path, _regular_name(path)): path for path, _ in leaves()}


def from_environment(env: Mapping[str, str]) -> Layer:
    """Read the environment; unknown variables with our prefix are problems of the layer."""
    layer = Layer()
    lists = {path: get_args(field.annotation) for path, field in leaves() if get_origin(field.annotation) is tuple}
    for name, text in env.items():
        if not text.strip() or _is_service_link(name, text):
            continue
        if (path := variables().get(name)) is not None:
            # A ladder may be the name of a mode; any other list may have one entry, which needs no comma.
            is_list = path in lists and ("," in text or lists[path][0] is str)
            value = _split(text) if is_list else text.strip()
            layer.put(path, value, _source_of(name))
        elif name.startswith(_PREFIX) and name not in _NOT_SETTINGS:
            # Without its value: that of a name that nobody knows may be a token.
            layer.problems.append(f"{name}: unknown environment variable; {_meant(name)}")
        elif near := _slip(name):
            layer.problems.append(f"{name}: unknown environment variable; did you mean {near}?")
    return layer


def admin_token(env: Mapping[str, str]) -> str | None:
    """The token of the admin page, None if none is set. ConfigError for one that cannot be used."""
    token = env.get(ADMIN_TOKEN, "").strip()
    return usable_token(token, f"environment variable {ADMIN_TOKEN}") if token else None


def usable_token(token: str, source: str) -> str:
    """Check a token and return it. ConfigError, which names `source`, if it is too short or no header can hold it."""
    if not re.fullmatch(r"[!-~]{16,}", token):
        raise ConfigError(f"the admin token ({source}) is too short, or holds what no header can; {TOKEN_HINT}")
    return token


def _source_of(name: str) -> Callable[[KeyPath], str]:
    return lambda _: f"environment variable {name}"


def _regular_name(path: KeyPath) -> str:
    below = path[1:] if path[0] == "tool_call_loop" else path
    return _PREFIX + "_".join(below).upper()


def _split(text: str) -> list[Any]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_service_link(name: str, text: str) -> bool:
    addressed = name.endswith(("_PORT", "_TCP", "_UDP", "_SCTP")) and _SERVICE_ADDRESS.match(text)
    return bool(addressed or _SERVICE_LINK.fullmatch(name))


def _slip(name: str) -> str | None:
    """The variable that an unknown name is probably a typing error of."""
    four = {variable.removeprefix(_SHORT_PREFIX): variable for variable in _SHORT_NAMES.values()}
    if not name.startswith(_SHORT_PREFIX):
        return nearest(name, variables(), typo_only=True)
    bare = name.removeprefix(_SHORT_PREFIX)
    ours = set(bare.split("_")) <= {word for one in four for word in one.split("_")}
    near = nearest(bare, four, typo_only=not ours)
    return four[near] if near else None


def _meant(name: str) -> str:
    """The nearest variable; the regular spelling of one of the four leads to it as well."""
    spellings = {_regular_name(path): variable for variable, path in variables().items()}
    spellings |= {variable: variable for variable in (CONFIG_FILE, ADMIN_TOKEN, *variables())}
    # Compared without the prefix, which would make all of them alike.
    bare = {spelling.removeprefix(_PREFIX): variable for spelling, variable in spellings.items()}
    for path, field in keys():
        if entry_of(field.annotation) and _regular_name(path) == name:
            return f"{dotted(path)} has none; set it in the file"
    if near := nearest(name.removeprefix(_PREFIX), bare):
        return f"did you mean {bare[near]}?"
    return f"the variables are {', '.join((CONFIG_FILE, *variables()))}"
