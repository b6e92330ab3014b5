"""Handles reasoning that was cut off, which the vendor has not signed and would refuse in a history.

The client has it, and sends it back. So callfuse gives it a signature of its own, and removes it from later requests.
"""

from collections import Counter
from typing import Any, Final

from callfuse.wire.jsontext import Edit, Path, apply, loads

CUT: Final = "callfuse-cut-off"
"""The signature that callfuse gives to reasoning that was cut off."""
CUT_MARK: Final = f'"{CUT}"'.encode()
"""Bytes that occur in every body with reasoning that was cut off."""


def leave_out(body: bytes) -> bytes:
    """Remove reasoning that was cut off from a request: list elements with callfuse's signature, and messages with
    nothing else. Raises NotJSON."""
    payload = loads(body)
    places = dict.fromkeys(_elements(payload))
    of_list = Counter([path[:-1] for path in places])
    empty = {holder for holder, count in of_list.items() if count == len(_at(payload, holder))}
    gone = [(path[:-1] in empty and _element_of(path[:-1])) or path for path in places]
    return apply(body, [Edit(path, None) for path in dict.fromkeys(gone)])


def _elements(payload: Any) -> list[Path]:
    """Return the paths of the innermost list elements that have callfuse's signature."""
    found: list[Path] = []
    left: list[tuple[Path, Any]] = [((), payload)]
    while left:
        path, holder = left.pop()
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(value, dict | list):
                left.append(((*path, key), value))
            elif value == CUT and key in ("signature", "encrypted_content") and (place := _element_of(path)):
                found.append(place)
    return found


def _element_of(path: Path) -> Path:
    """Return the path of the innermost list element on a path; empty if the path leads through no list."""
    while path and not isinstance(path[-1], int):
        path = path[:-1]
    return path


def _at(payload: Any, path: Path) -> Any:
    for key in path:
        payload = payload[key]
    return payload
