"""Read the environment into a layer of settings.

Every leaf of the configuration has one variable: `CALLFUSE_<KEY>` for the block `tool_call_loop`
(`CALLFUSE_ERROR_MESSAGES_BLOCK` for a nested key), `CALLFUSE_<BLOCK>_<KEY>` for the other blocks. Four variables have a
synonym, `TOOL_LOOP_...`; different values in both are a problem. Commas separate the items of a list. An empty variable
counts as not set, because compose files and shells produce such variables. Secrets can also stand in files
(`secret_files.py`).

Unknown variables may belong to other programs. The following are problems: a `CALLFUSE_*` name that resembles a known
one, a known name with a typing error, and a `TOOL_LOOP_*` name that has only words of the synonyms (`TOOL_LOOP_TTL`).
Other `CALLFUSE_*` names, and `TOOL_LOOP_*` names that resemble a synonym, get a warning.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args, get_origin

from callfuse.config.layers import Layer
from callfuse.config.model import KeyPath, dotted_name, entry_of, keys, leaves
from callfuse.config.secret_files import SUFFIX, secret_of
from callfuse.errors import ConfigError
from callfuse.policy.nearest import nearest

CONFIG_FILE = "CALLFUSE_CONFIG"
ADMIN_TOKEN = "CALLFUSE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
GUARDRAIL_KEY = "CALLFUSE_GUARDRAIL_KEY"
TOKEN_HINT = "use 16 or more ASCII characters without spaces"  # noqa: S105 - a sentence

_SETS_NOTHING = "unknown environment variable, ignored by callfuse"
_PREFIX = "CALLFUSE_"
_SYNONYM_PREFIX = "TOOL_LOOP_"
SYNONYMS: dict[str, KeyPath] = {
    "TOOL_LOOP_DETECTION_ENABLED": ("tool_call_loop", "enabled"),
    "TOOL_LOOP_MAX_REPEATS": ("tool_call_loop", "max_repeats"),
    "TOOL_LOOP_TTL_SECONDS": ("tool_call_loop", "ttl_seconds"),
    "TOOL_LOOP_MODE": ("tool_call_loop", "mode"),
}
"""Second names of variables, each with the path of the key that it sets."""
_NOT_SETTINGS = frozenset({CONFIG_FILE, ADMIN_TOKEN, GUARDRAIL_KEY, "CALLFUSE_CAPTURES"})
"""Variables that set no key: the path of the file, the token, the key, and the folder of recorded bodies for tests."""
_SECRETS = (
    ADMIN_TOKEN,
    GUARDRAIL_KEY,
    "CALLFUSE_STORE",
    "CALLFUSE_SERVE_UPSTREAM",
    "CALLFUSE_EVENTS_WEBHOOK",
    "CALLFUSE_EVENTS_SECRET",
)
IN_FILES = {name + SUFFIX: name for name in _SECRETS}
"""Variables that name a file with the value of another variable, for values that are secrets or contain one."""

# Kubernetes sets variables for each service of a namespace in every pod: services named callfuse and callfuse-serve
# appear as CALLFUSE_SERVICE_HOST=10.0.0.1 and CALLFUSE_SERVE_PORT=tcp://10.0.0.1:80.
_SERVICE_LINK = re.compile(r"CALLFUSE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)_\w+)")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


@cache
def variables() -> dict[str, KeyPath]:
    """Return all variables without synonyms, each with the path of the key that it sets."""
    return {_name_of(path): path for path, _ in leaves()}


def from_environment(env: Mapping[str, str]) -> Layer:
    """Read the environment into a layer, with problems and warnings about unknown variables."""
    layer = Layer()
    for name, text in env.items():
        if not text.strip() or _is_service_link(name, text):
            continue
        if (secret := IN_FILES.get(name)) is not None:
            _put_from_file(layer, env, secret)
        elif (path := variables().get(name) or SYNONYMS.get(name)) is not None:
            layer.put(path, _read_value(path, text), _source_of(name))
        elif name not in _NOT_SETTINGS:
            _tell_unknown(layer, name)
    return layer


@cache
def _lists() -> Mapping[KeyPath, tuple[Any, ...]]:
    """Return the settings that are lists, with the types of their entries."""
    return {path: get_args(field.annotation) for path, field in leaves() if get_origin(field.annotation) is tuple}


def _read_value(path: KeyPath, text: str) -> str | list[Any]:
    """Parse the text of a variable: a text, or the items of a list. A ladder may be the name of a mode. For other
    lists, a text without a comma is a single item."""
    entries = _lists().get(path)
    is_list = entries is not None and ("," in text or entries[0] is str)
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text.strip()


def _tell_unknown(layer: Layer, name: str) -> None:
    """Report a variable that sets nothing, without its value, which may be a token."""
    if name.startswith(_PREFIX):
        if right := _suggest_variable(name):
            layer.problems.append(f"{name}: unknown environment variable; {right}")
        else:
            layer.warnings.append(f"{name}: {_SETS_NOTHING}")
    elif near := _find_typo(name):
        layer.problems.append(f"{name}: unknown environment variable; did you mean {near}?")
    elif near := _find_near(name):
        layer.warnings.append(f"{name}: {_SETS_NOTHING}; did you mean {near}?")


def admin_token(env: Mapping[str, str]) -> str | None:
    """Read the token of the admin page; None if none is set. Raises ConfigError for an invalid one."""
    token, name = secret_of(env, ADMIN_TOKEN)
    return usable_token(token, f"environment variable {name}") if token else None


def guardrail_key(env: Mapping[str, str]) -> str | None:
    """Read the key that LiteLLM sends to the guardrail; None if none is set. Raises ConfigError for an invalid one."""
    key, name = secret_of(env, GUARDRAIL_KEY)
    return usable_token(key, f"environment variable {name}", "guardrail key") if key else None


def usable_token(token: str, source: str, what: str = "admin token") -> str:
    """Check a token and return it. Raises ConfigError if it is too short, or has a character that is not allowed in
    headers. `what` names it, and `source` its place, in the message."""
    if not re.fullmatch(r"[!-~]{16,}", token):
        raise ConfigError(
            f"the {what} ({source}) is too short, or has a character that no header may have; {TOKEN_HINT}"
        )
    return token


def _put_from_file(layer: Layer, env: Mapping[str, str], name: str) -> None:
    """Read the value of a variable from its file into the layer, or report what is wrong with the file. Ignores
    variables that do not name a setting."""
    if (path := variables().get(name)) is None:
        return
    try:
        text, source = secret_of(env, name)
    except ConfigError as error:
        layer.problems.append(str(error))
    else:
        layer.put(path, text, _source_of(source))


def _source_of(name: str) -> Callable[[KeyPath], str]:
    return lambda _: f"environment variable {name}"


def _name_of(path: KeyPath) -> str:
    below = path[1:] if path[0] == "tool_call_loop" else path
    return _PREFIX + "_".join(below).upper()


def _is_service_link(name: str, text: str) -> bool:
    addressed = name.endswith(("_PORT", "_TCP", "_UDP", "_SCTP")) and _SERVICE_ADDRESS.match(text)
    return bool(addressed or _SERVICE_LINK.fullmatch(name))


def _bare_synonyms() -> dict[str, str]:
    return {variable.removeprefix(_SYNONYM_PREFIX): variable for variable in SYNONYMS}


def _find_near(name: str) -> str | None:
    """Return the `TOOL_LOOP_*` variable that an unknown name with this prefix probably means; None if there is none."""
    if not name.startswith(_SYNONYM_PREFIX):
        return None
    four = _bare_synonyms()
    near = nearest(name.removeprefix(_SYNONYM_PREFIX), four)
    return four[near] if near else None


def _find_typo(name: str) -> str | None:
    """Return the variable that an unknown name with a typing error probably means; None if there is none."""
    four = _bare_synonyms()
    if not name.startswith(_SYNONYM_PREFIX):
        return nearest(name, (*variables(), *SYNONYMS), typo_only=True)
    bare = name.removeprefix(_SYNONYM_PREFIX)
    ours = set(bare.split("_")) <= {word for one in four for word in one.split("_")}
    near = nearest(bare, four, typo_only=not ours)
    return four[near] if near else None


def _suggest_variable(name: str) -> str | None:
    """Suggest the nearest variable; None if none is near."""
    names = (ADMIN_TOKEN, *variables(), CONFIG_FILE, GUARDRAIL_KEY, *IN_FILES)
    # Compared without the prefix, because it would make all names similar.
    bare = {variable.removeprefix(_PREFIX): variable for variable in names}
    for path, field in keys():
        if entry_of(field.annotation) and _name_of(path) == name:
            return f"{dotted_name(path)} has no variable; set it in the file"
    near = nearest(name.removeprefix(_PREFIX), bare)
    return f"did you mean {bare[near]}?" if near else None
