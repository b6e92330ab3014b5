"""Replaces thought signatures that are lost when a call of Gemini is withheld, in its own and the OpenAI-compatible
format.

Only the first of parallel calls has the step's signature, and models since Gemini 3 refuse a history whose first call
has none. If that call is withheld and others are delivered, the first delivered one gets Google's documented stand-in.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from callfuse.dialects.base import Frame, OpenCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import Path, dumps, loads

STAND_IN: Final = "skip_thought_signature_validator"
_NEEDS_NONE: Final = re.compile(r"gemini-[12](?![0-9])|gemma")
"""Models that accept a history without signatures, and might refuse the stand-in."""


def are_demanded(model: str, *, in_use: bool) -> bool:
    """Whether a model may refuse a history in which a step's first call has no signature. A gateway may rename the
    model, so signatures that are `in_use` count, too."""
    return (in_use or "gemini" in model) and not _NEEDS_NONE.search(model)


def survivor_without(signed: Sequence[bool], withheld: Sequence[bool], model: str) -> int | None:
    """Return the index of the call, within one choice, that gets the stand-in; None if no call needs it. `signed`,
    `withheld`: per call."""
    first = next((at for at, gone in enumerate(withheld) if not gone), None)
    if first is None or signed[first] or not any(signed[:first]) or _NEEDS_NONE.search(model):
        return None
    return first


def is_signed(call: Payload) -> bool:
    """Whether a call in the OpenAI-compatible format, or what a vendor added to the call, carries a signature."""
    extra = call.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    return isinstance(google, dict) and bool(google.get("thought_signature"))


def add_stand_in(extra: bytes) -> bytes:
    """Return what a vendor added to a call in the OpenAI-compatible format, with the stand-in in it."""
    value: Payload = (loads(extra) if extra else None) or {}
    google: Payload = value.get("google") or {}
    return dumps(value | {"google": google | {"thought_signature": STAND_IN}})


def stand_ins(
    frames: Iterable[Frame], withheld: set[OpenCall], is_signed: Callable[[OpenCall], bool], model: str
) -> dict[int, list[Path]]:
    """Return, by each frame's `id()`, the paths of the parts that get the stand-in."""
    found: dict[int, list[Path]] = {}
    opened = _opened(frames)
    for call in heirs(opened, withheld, is_signed, model):
        frame_id, path = opened[call]
        found.setdefault(frame_id, []).append(path)
    return found


def heirs(
    opened: Iterable[OpenCall], withheld: set[OpenCall], is_signed: Callable[[OpenCall], bool], model: str
) -> Iterator[OpenCall]:
    """Yield the calls opened in held frames that get the stand-in; at most one per choice."""
    if not any(map(is_signed, withheld)):
        return
    known = set(opened)
    for choice in {call.choice for call in withheld}:
        calls = {call.index: call for call in (*known, *withheld) if call.choice == choice}
        listed = [calls.get(at) for at in range(max(calls) + 1)]
        chosen = survivor_without(
            [call is not None and is_signed(call) for call in listed], [call in withheld for call in listed], model
        )
        call = listed[chosen] if chosen is not None else None
        if call is not None and call in known:
            yield call


def _opened(frames: Iterable[Frame]) -> dict[OpenCall, tuple[int, Path]]:
    """Return where calls begin in held frames: the frame's `id()`, and the path of the call's first part."""
    opened: dict[OpenCall, tuple[int, Path]] = {}
    for frame in frames:
        for entry in frame.entries:
            opened.setdefault(entry.call, (id(frame), entry.path))
    return opened
