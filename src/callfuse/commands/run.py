"""Run commands: compute a session's new overrides, and the text that answers the commands."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from callfuse.commands.syntax import MAX_COMMANDS, NAMES, Command
from callfuse.harness import MARKER
from callfuse.policy.nearest import suggest
from callfuse.policy.sections import Commands, TierSettings, command_key
from callfuse.policy.tiers import Overrides

KEYS: Final = {
    "tool-loop-detection": "enabled",
    "tool-loop-max-repeats": "max_repeats",
    "tool-loop-ttl": "ttl_seconds",
    "tool-loop-mode": "mode",
}
"""The names of settings in commands, with their names in the file."""
ALLOWED: Final = {
    "enabled": "true or false",
    "max_repeats": "0 (off) or a whole number from 2",
    "ttl_seconds": "a number above 0, in seconds",
    "mode": "observe, warn, block, chance_then_block, graduated or unattended",
}


REFUSED: Final = f"{MARKER} Nothing was changed"
"""The beginning of the answer to commands that could not be run."""


def closed_settings(commands: Commands) -> frozenset[str]:
    """Return the settings that no command may set: keys that are locked or not listed; all if commands are off."""
    return frozenset(
        setting
        for key, setting in KEYS.items()
        if not commands.enabled or key not in commands.keys or key in commands.locked
    )


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The overrides after the commands, and the answer. `failed`: a command was wrong, and nothing was changed."""

    overrides: Overrides
    text: str
    failed: bool


class _CommandError(ValueError):
    """A command that cannot be run; the message says why, for the user."""


def run_commands(
    commands: Sequence[Command],
    before: Overrides,
    *,
    keys: Collection[str] = tuple(KEYS),
    locked: Collection[str] = (),
    prefix: str = "!/",
    status: Callable[[Overrides], Iterable[tuple[str, str, str]]],
) -> CommandResult:
    """Run the commands of one message, all of them or none.

    `keys` are those that users may set, `locked` those that operators have locked. `status` returns key, value and
    tier of each setting in effect with given overrides. A wrong command raises nothing: `failed` is set.
    """
    if len(commands) > MAX_COMMANDS:
        text = f"{REFUSED}: more than {MAX_COMMANDS} commands; use at most {MAX_COMMANDS} in a message."
        return CommandResult(before, text, failed=True)
    values = dict(before.values)
    lines: list[str] = []
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
            lines += _action(command, actions, prefix)(command)
    except _CommandError as wrong:
        end = "" if str(wrong).endswith("?") else "."
        return CommandResult(before, f"{REFUSED}: {wrong}{end}", failed=True)
    return CommandResult(Overrides(values, before.tools), "\n".join([f"{MARKER} {lines[0]}", *lines[1:]]), failed=False)


def _action(
    command: Command, actions: dict[str, Callable[[Command], list[str]]], prefix: str
) -> Callable[[Command], list[str]]:
    if command.broken:
        raise _CommandError(f"{prefix}{command.name}(...) cannot be read; use {prefix}set(key=value, key=value)")
    if command.name not in actions:
        raise _CommandError(f"{prefix}{command.name} is not a command; {suggest(command.name, NAMES)}")
    return actions[command.name]


def _set(command: Command, values: dict[str, Any], keys: Collection[str], locked: Collection[str]) -> list[str]:
    if not command.arguments:
        raise _CommandError(f"set needs key=value; the keys are {', '.join(keys)}")
    lines = []
    for typed, value in command.arguments:
        key = _key(typed, keys, locked)
        setting = KEYS[key]
        try:
            section = TierSettings.model_validate({setting: value})
        except ValidationError:
            raise _CommandError(f"{key} = {value!r}: use {ALLOWED[setting]}") from None
        if value is None:
            raise _CommandError(f"{key} needs a value: use {ALLOWED[setting]}")
        values[setting] = getattr(section, setting)
        lines.append(f"{key} = {value} for this session.")
    return lines


def _unset(command: Command, values: dict[str, Any], keys: Collection[str], locked: Collection[str]) -> list[str]:
    if not command.arguments:
        raise _CommandError(f"unset needs a key; the keys are {', '.join(keys)}")
    lines = []
    for typed, _ in command.arguments:
        key = _key(typed, keys, locked)
        values.pop(KEYS[key], None)
        lines.append(f"{key} has its previous value again.")
    return lines


def _help(keys: Collection[str], prefix: str) -> list[str]:
    return [
        "Commands in a message:",
        f"{prefix}set(key=value, ...), {prefix}unset(key, ...), {prefix}status, {prefix}help",
        *(f"{key}: {ALLOWED[KEYS[key]]}" for key in keys),
    ]


def _key(typed: str, keys: Collection[str], locked: Collection[str]) -> str:
    key = command_key(typed)
    if key in locked:
        raise _CommandError(f"{key} can only be set by the operator of this server")
    if key not in keys:
        others = f"use {', '.join(keys)}" if key in KEYS else suggest(key, keys)  # a known key is not a misspelling
        raise _CommandError(f"{typed} cannot be set here; {others if keys else 'no setting can be changed'}")
    return key
