"""Read secrets from files, as Docker, Kubernetes and systemd provide them: the variable `NAME_FILE` names a file with
the value of `NAME`. More programs can read a process's environment than such a file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from callfuse.errors import ConfigError

SUFFIX: Final = "_FILE"
MOST_BYTES: Final = 65_536
"""A longer file is probably the wrong one. Secrets have a few hundred bytes."""


def secret_of(env: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the text of the variable, or of the file that `NAME_FILE` names, stripped of white space, and the name of
    the variable that is set; two empty texts if neither is set. Raises ConfigError if both are set, or if the file
    cannot be read or is empty. Messages contain no secrets."""
    text, path = env.get(name, "").strip(), env.get(name + SUFFIX, "").strip()
    if text and path:
        raise ConfigError(f"{name} and {name}{SUFFIX} are both set; keep one of them")
    if not path:
        return text, name if text else ""
    return _read(path, name + SUFFIX), name + SUFFIX


def _read(path: str, variable: str) -> str:
    hint = "name a file that contains only the secret"
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode().strip()
    except OSError as error:
        raise ConfigError(f"{variable}: cannot read {path}: {error.strerror or 'no such file'}; {hint}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{variable}: {path} is not text; {hint}") from None
    if not text or len(content) > MOST_BYTES:
        raise ConfigError(f"{variable}: {path} is {'too long' if text else 'empty'}; {hint}")
    return text
