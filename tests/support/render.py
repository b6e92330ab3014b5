"""JSON and server-sent events as different vendors and clients write them.

In: plain objects and the quirks of one vendor. Out: bytes. `place_noise` puts keep-alives between finished frames.
"""

import json
from typing import Any

from tests.support.model import Frame, Quirks, Style


def dumps(value: Any, *, spaced: bool = False, ascii_only: bool = False) -> str:
    """JSON in one of the usual hands."""
    return json.dumps(value, ensure_ascii=ascii_only, separators=(", ", ": ") if spaced else (",", ":"))


def client_json(value: Any, style: Style) -> bytes:
    """A request body as some client writes it."""
    return dumps(value, spaced=style.spaced, ascii_only=style.ascii).encode()


def sse(data: str, quirks: Quirks, event: str = "") -> bytes:
    """One event."""
    end, gap = quirks.newline, " " if quirks.space else ""
    lines = [f": processing{end}"] if quirks.inline_comment else []
    if event:
        lines.append(f"event:{gap}{event}{end}")
    lines += [f"data:{gap}{line}{end}" for line in data.split("\n")]
    return ("".join(lines) + end).encode()


def payload(value: dict[str, Any], quirks: Quirks) -> str:
    """The JSON of one event; a line break may stand between its members only, never inside a string."""
    if quirks.spread:
        members = ",\n".join(f"{dumps(key)}:{dumps(member)}" for key, member in value.items())
        return f"{{\n{members}\n}}"
    return dumps(value, spaced=quirks.spaced)


def place_noise(frames: list[Frame], noise: Frame, quirks: Quirks) -> tuple[Frame, ...]:
    """The frames with keep-alives before the places that the quirks name (never before the first)."""
    places = sorted({1 + place % max(len(frames) - 1, 1) for place in quirks.noise}, reverse=True)
    for place in places:
        frames.insert(place, noise)
    if quirks.unterminated:
        last = frames[-1]
        frames[-1] = Frame(last.raw[: -len(quirks.newline)], last.kind, last.choice, last.item)
    return tuple(frames)
