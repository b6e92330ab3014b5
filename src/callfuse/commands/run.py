"""Run commands: from a session's overrides make the new ones, and the text that answers the commands."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from callfuse.commands.syntax import NAMES, Command
from callfuse.harness import MARKER
from callfuse.policy.nearest import meant
from callfuse.policy.sections import TierSettings, command_key
from callfuse.policy.tiers import Overrides

KEYS: Final = {
    "tool-loop-detection": "enabled",
    "tool-loop-max-repeats": "max_repeats",
    "tool-loop-ttl": "ttl_seconds",
    "tool-loop-mode": "mode",
}
"""The names of settings in commands, and in the file."""
ALLOWED: Final = {
    "enabled": "true or false",
    "max_repeats": "0 (off) or a whole number from 2",
    "ttl_seconds": "a number above 0, in seconds",
    "mode": "observe, warn, block, chance_then_block or graduated",
}


MOST: Final = 50
"""The number of commands of one message that are run."""
REFUSED: Final = f"{MARKER} Nothing was changed"
"""The beginning of the answer to commands that could not be run."""


def pinned(locked: Collection[str]) -> frozenset[str]:
    """The settings that sessions may not change when operators have locked these keys."""
    return frozenset(KEYS[key] for key in locked)


@dataclass(frozen=True, slots=True)
class Ran:
    """The overrides after the commands, what to say, and whether something was wrong: then nothing was changed."""

    overrides: Overrides
    text: str
    failed: bool


class _WrongError(ValueError):
    """A command that cannot be run."""


def run(
    commands: Sequence[Command],
    before: Overrides,
    *,
    keys: Collection[str] = tuple(KEYS),
    locked: Collection[str] = (),
    prefix: str = "!/",
    status: Callable[[Overrides], Iterable[tuple[str, str, str]]],
) -> Ran:
    """Run the commands of one message, all of them or none.

    `keys` are those that users may set, `locked` those that operators have pinned. `status` tells key, value and
    tier of the settings that hold with such overrides.
    """
    if len(commands) > MOST:
        text = f"{REFUSED}: these are {len(commands)} commands; use at most {MOST} in a message."
        return Ran(before, text, failed=True)
    values = dict(before.values)
    said: list[str] = []
    open_keys = [key for key in KEYS if key in keys and key not in locked]
    actions: dict[str, Callable[[Command], list[str]]] = {
        "set": lambda command: _set(command, values, open_keys, locked),
        "unset": lambda command: _unset(command, values, open_keys, locked),
        "status": lambda _: [
            f"{key} = {value} ({tier})" for key, value, tier in status(Overrides(values, before.tools))
        ],
        "help": lambda _: _help(open_keys, prefix),
    }
    try:
        for command in commands:
            said += _action(command, actions, prefix)(command)
    except _WrongError as wrong:
        end = "" if str(wrong).endswith("?") else "."
        return Ran(before, f"{REFUSED}: {wrong}{end}", failed=True)
    return Ran(Overrides(values, before.tools), "\n".join([f"{MARKER} {said[0]}", *said[1:]]), failed=False)


def _action(
    command: Command, actions: dict[str, Callable[[Command], list[str]]], prefix: str
) -> Callable[[Command], list[str]]:
    if command.broken:
        raise _WrongError(f"{prefix}{command.name}(...) cannot be read; use {prefix}set(key=value, key=value)")
    if command.name not in actions:
        raise _WrongError(f"{prefix}{command.name} is no command; {meant(command.name, NAMES)}")
    return actions[command.name]


def _set(command: Command, values: dict[str, Any], keys: Collection[str], locked: Collection[str]) -> list[str]:
    if not command.arguments:
        raise _WrongError(f"set needs key=value; the keys are {', '.join(keys)}")
    said = []
    for typed, value in command.arguments:
        key = _key(typed, keys, locked)
        setting = KEYS[key]
        try:
            section = TierSettings.model_validate({setting: value})
        except ValidationError:
            raise _WrongError(f"{key} = {value!r}: use {ALLOWED[setting]}") from None
        if value is None:
            raise _WrongError(f"{key} needs a value: use {ALLOWED[setting]}")
        values[setting] = getattr(section, setting)
        said.append(f"{key} = {value} for this session.")
    return said


def _unset(command: Command, values: dict[str, Any], keys: Collection[str], locked: Collection[str]) -> list[str]:
    if not command.arguments:
        raise _WrongError(f"unset needs a key; the keys are {', '.join(keys)}")
    said = []
    for typed, _ in command.arguments:
        key = _key(typed, keys, locked)
        values.pop(KEYS[key], None)
        said.append(f"{key} is what it was before this session changed it.")
    return said


def _help(keys: Collection[str], prefix: str) -> list[str]:
    return [
        "Commands, in a message of yours:",
        f"{prefix}set(key=value, ...), {prefix}unset(key, ...), {prefix}status, {prefix}help",
        *(f"{key}: {ALLOWED[KEYS[key]]}" for key in keys),
    ]


def _key(typed: str, keys: Collection[str], locked: Collection[str]) -> str:
    key = command_key(typed)
    if key in locked:
        raise _WrongError(f"{key} is set by whoever runs this server")
    if key not in keys:
        raise _WrongError(f"{typed} is no key that can be set here; {meant(key, keys) if keys else 'none can be'}")
    return key
