"""Reasoning that was cut off: the vendor has not signed it, and refuses it in a history.

The client has it, and sends it back. So it gets a signature of callfuse's own, by which later requests leave it out.
"""

from collections import Counter
from typing import Any, Final

from callfuse.wire.jsontext import Edit, Path, apply, loads

CUT: Final = "callfuse-cut-off"
"""The signature."""
CUT_MARK: Final = f'"{CUT}"'.encode()
"""What a body contains that has such reasoning."""


def leave_out(body: bytes) -> bytes:
    """A request without such reasoning: the elements of lists that have the signature, and messages with nothing else.
    Raises NotJSON."""
    payload = loads(body)
    places = dict.fromkeys(_elements(payload))
    of_list = Counter([path[:-1] for path in places])
    empty = {holder for holder, count in of_list.items() if count == len(_at(payload, holder))}
    gone = [(path[:-1] in empty and _element_of(path[:-1])) or path for path in places]
    return apply(body, [Edit(path, None) for path in dict.fromkeys(gone)])


def _elements(payload: Any) -> list[Path]:
    """The paths of the innermost elements of lists that have the signature."""
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
    """The path of the innermost element of a list on a path; empty if there is none."""
    while path and not isinstance(path[-1], int):
        path = path[:-1]
    return path


def _at(payload: Any, path: Path) -> Any:
    for key in path:
        payload = payload[key]
    return payload
