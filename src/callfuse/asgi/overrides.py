"""Read settings in request headers of trusted callers, for example `x-callfuse-mode: warn`.

The headers are always removed before the app sees the request. They apply only if `header_overrides` is on, and only to
that exchange.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from callfuse.asgi.headers import without
from callfuse.asgi.types import Scope
from callfuse.config.model import section_of
from callfuse.config.wording import describe_fix, format_value
from callfuse.conversations.identity import OWN_HEADER, OWN_PREFIX
from callfuse.memo import remembered
from callfuse.policy.nearest import nearest
from callfuse.policy.sections import ModelSettings
from callfuse.policy.settings import NO_OTHER_MODEL
from callfuse.policy.tiers import Overrides

KEYS: Final = {
    f"x-callfuse-{key.replace('_', '-')}".encode(): key
    for key, field in ModelSettings.model_fields.items()
    if section_of(field.annotation) is None
}
"""Headers, each with the key of the setting that it sets."""
NAMES: Final = frozenset(KEYS)
_MODE: Final = "x-callfuse-mode"
_KNOWN: Final = NAMES | {OWN_HEADER, b"x-callfuse-action", b"x-callfuse-via"}


def read_overrides(found: Mapping[bytes, bytes], *, has_other_model: bool) -> tuple[Overrides, dict[str, str]]:
    """Read the overrides in the headers of a request. Returns also a problem for each header that sets nothing.

    `has_other_model`: the settings name a model to escalate to, so a mode may contain `escalate`.
    """
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for name in sorted(NAMES & found.keys()):
        value, problem = _read_value(name, found[name])
        if problem:
            wrong[name.decode()] = problem
        else:
            values[KEYS[name]] = value
    if any(rung.other_model for rung in values.get("mode", ())) and not (has_other_model or "escalate_model" in values):
        del values["mode"]
        wrong[_MODE] = f"{format_value(found[_MODE.encode()].decode('latin-1'))}: {NO_OTHER_MODEL}"
    return Overrides(values), wrong


@remembered(entries=256, longest=512)
def _read_value(name: bytes, value: bytes) -> tuple[Any, str]:
    """Return the value of a header, and what is wrong with it (empty if valid). Cached, because a caller sends the same
    with each request."""
    key, text = KEYS[name], value.decode("latin-1").strip()
    parts = [part.strip() for part in text.split(",")]
    try:
        section = ModelSettings.model_validate({key: parts if key == "mode" and len(parts) > 1 else text})
    except ValidationError as error:
        words = describe_fix(error.errors()[0], ModelSettings.model_fields[key], text)
        return None, f"{format_value(text)}: {words}"
    return getattr(section, key), ""


def find_unknown(found: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return unknown headers with callfuse's prefix, each with a hint at the header that was probably meant."""
    names = [name.decode("latin-1") for name in found if name.startswith(OWN_PREFIX) and name not in _KNOWN]
    bare = {name.decode().removeprefix(OWN_PREFIX.decode()): name.decode() for name in sorted({*NAMES, OWN_HEADER})}
    return {name: f"there is no header of this name; {_meant(name, bare)}" for name in names}


def _meant(name: str, bare: Mapping[str, str]) -> str:
    """Return a hint at the header that was probably meant. Ignores the prefix, which makes all names similar."""
    near = nearest(name.removeprefix(OWN_PREFIX.decode()), bare)
    return f"did you mean {bare[near]}?" if near else f"use {', '.join(bare.values())}"


def without_overrides(scope: Scope, found: Mapping[bytes, bytes]) -> Scope:
    """Return the scope without override headers; the same object if none of them is in `found`."""
    if NAMES.isdisjoint(found):
        return scope
    return {**scope, "headers": without(scope["headers"], NAMES)}
