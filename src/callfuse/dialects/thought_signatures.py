"""Thought signatures of Gemini's parallel calls, in its own format and in the OpenAI-compatible one.

Only the first of parallel calls carries the step's signature, and models from Gemini 3 on refuse a history whose first
call has none. Where that call is withheld and another survives, the first survivor gets Google's documented stand-in.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from callfuse.dialects.base import Frame, OpenCall

STAND_IN: Final = "skip_thought_signature_validator"
_NEEDS_NONE: Final = re.compile(r"gemini-[12](?![0-9])|gemma")
"""Models that take a history without signatures, and might refuse a made-up one."""

Path = tuple[str | int, ...]


def are_demanded(model: str, *, in_use: bool) -> bool:
    """Whether a model of this name may refuse a history in which a step's first call has no signature. Names may be a
    gateway's own; so it counts whether signatures are `in_use`."""
    return (in_use or "gemini" in model) and not _NEEDS_NONE.search(model)


def survivor_without(signed: Sequence[bool], withheld: Sequence[bool], model: str) -> int | None:
    """Which of the calls of one choice, by whether they carry a signature and are withheld, gets the stand-in."""
    first = next((at for at, gone in enumerate(withheld) if not gone), None)
    if first is None or signed[first] or not any(signed[:first]) or _NEEDS_NONE.search(model):
        return None
    return first


def stand_ins(
    frames: Iterable[Frame], withheld: set[OpenCall], is_signed: Callable[[OpenCall], bool], model: str
) -> dict[int, list[Path]]:
    """Where in held frames, by the frame's id, the parts open that get the stand-in."""
    found: dict[int, list[Path]] = {}
    opened = _opened(frames)
    for call in heirs(opened, withheld, is_signed, model):
        frame_id, path = opened[call]
        found.setdefault(frame_id, []).append(path)
    return found


def heirs(
    opened: Iterable[OpenCall], withheld: set[OpenCall], is_signed: Callable[[OpenCall], bool], model: str
) -> Iterator[OpenCall]:
    """The calls, of those that open in held frames, that get the stand-in: one a choice at most."""
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
    """Where calls begin in held frames: the frame's id, and the path of the first part."""
    opened: dict[OpenCall, tuple[int, Path]] = {}
    for frame in frames:
        for entry in frame.entries:
            opened.setdefault(entry.call, (id(frame), entry.path))
    return opened
