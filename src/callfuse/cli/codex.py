"""Route Codex through a guard with a profile.

Codex reads no variable for its base URL, and its command line, which every local user can read, must not contain the
guard's secret path. So each run gets its own profile, `$CODEX_HOME/NAME.config.toml`, which only its owner can read.
`--profile NAME` applies it over the user's settings, and the file is removed at the end. If a run is killed, the next
one removes its file: NAME identifies process and machine.

Codex accepts one profile. If the user has chosen one, the new profile includes its settings.
"""

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path, PurePath
from secrets import token_hex
from typing import Final

CODEX: Final = "codex"
KEY: Final = "openai_base_url"
"""The setting with the base URL."""
_OWN_KEY: Final = re.compile(rf"^[ \t]*{KEY}[ \t]*=.*\n?", re.MULTILINE)
_OURS: Final = re.compile(r"callfuse-([0-9a-f]{8})-([0-9]{1,9})-[0-9a-f]{8}\.config\.toml")
_PROFILE: Final = re.compile(r"--profile(?:=(.*))?|-p=?(.*)")


def is_codex(command: Sequence[str]) -> bool:
    """Whether a command starts Codex."""
    return PurePath(command[0].replace("\\", "/")).stem.lower() == CODEX


@contextmanager
def led_to(base_url: str, command: Sequence[str], env: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the command that makes Codex use this base URL. Raises OSError if its profile cannot be written."""
    home = Path(env.get("CODEX_HOME") or Path.home() / ".codex")
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_stale(home)
    name = f"callfuse-{_machine()}-{os.getpid()}-{token_hex(4)}"
    arguments, chosen = _without_profile(command[1:])
    file = _file(home, name)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as profile:
            profile.write(f"{KEY} = {json.dumps(base_url)}\n{_settings(home, chosen)}")
        yield [command[0], "--profile", name, *arguments]
    finally:
        file.unlink(missing_ok=True)


def _machine() -> str:
    """Return a digest of the host name, for the names of profiles: if several machines share a home directory, a
    process id alone does not tell whose profile it is."""
    return sha256(socket.gethostname().encode()).hexdigest()[:8]


def _remove_stale(home: Path) -> None:
    """Remove the profiles of ended runs on this machine."""
    for file in home.glob("callfuse-*"):
        if (found := _OURS.fullmatch(file.name)) and found[1] == _machine() and not _is_running(int(found[2])):
            file.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    """Whether a process of this id exists. Always true on Windows, where checking by a signal would end it."""
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # another user's process cannot be checked
    return True


def _file(home: Path, profile: str) -> Path:
    return home / f"{profile}.config.toml"


def _settings(home: Path, profile: str) -> str:
    """Return the settings of a profile, without the base URL."""
    if not profile:
        return ""
    return _OWN_KEY.sub("", _file(home, profile).read_text(encoding="utf-8"))


def _without_profile(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments without the option for a profile, and the profile; empty if there is none. Options end at
    `--`."""
    rest: list[str] = []
    chosen = ""
    given = iter(arguments)
    for argument in given:
        if argument == "--":
            return [*rest, argument, *given], chosen
        if found := _PROFILE.fullmatch(argument):
            chosen = found[1] or found[2] or next(given, "")
        else:
            rest.append(argument)
    return rest, chosen
