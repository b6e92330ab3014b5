"""Handle versions of settings files: which names a version has removed, and how files that still use them are read.

A file declares its version with the key `version`. A file without it is older than the first version. Names that a
version has removed are read in older files, with a warning. In files of that version or a later one they are unknown.
"""

from collections.abc import Mapping
from typing import Final

from callfuse.config.model import KeyPath
from callfuse.config.wording import format_value

KEY: Final = "version"
CURRENT: Final = 1
ABOUT: Final = "The version of the settings file's format. Without it, names of older versions are read, too."
ANY: Final = "*"
"""Stands for a user-chosen name in a path."""
_OF_MODELS: Final = ("tool_call_loop", "models", ANY)
RENAMED: Final[Mapping[KeyPath, tuple[int, KeyPath]]] = {
    ("serve", "allowed_hosts"): (1, ("serve", "hosts")),
    ("tool_call_loop", "similarity", "threshold"): (1, ("tool_call_loop", "similarity_threshold")),
    ("tool_call_loop", "similarity", "metric"): (1, ("tool_call_loop", "similarity", "algorithm")),
    **{
        (*_OF_MODELS, f"tool_loop_detection_{key}"): (1, (*_OF_MODELS, key))
        for key in ("enabled", "max_repeats", "ttl_seconds", "mode")
    },
}
"""Old names of keys, each with the version that removed it and the key's name in that version."""


def renamed(path: KeyPath) -> tuple[int, KeyPath] | None:
    """Return the version that removed the name of a key, and its path in that version; None for other names."""
    if path in RENAMED:
        return RENAMED[path]
    of_model = (*path[:2], ANY) == _OF_MODELS and len(path) == len(_OF_MODELS) + 1
    if of_model and (found := RENAMED.get((*_OF_MODELS, path[-1]))):
        return found[0], (*path[:-1], found[1][-1])
    return None


def version_problem(value: object, place: str) -> str:
    """Return what is wrong with the value of `version`, and what is allowed; empty if it is valid."""
    if type(value) is int and value == CURRENT:
        return ""
    right = f"use {CURRENT}, or leave it out"
    if type(value) is int and value > CURRENT:
        right = f"this callfuse reads version {CURRENT}; install a callfuse that reads version {value}"
    return f"{KEY} = {format_value(value)} ({place}): {right}"
