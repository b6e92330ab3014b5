"""Thought signatures of parallel calls.

Only the first of parallel calls carries the step's signature, and models from Gemini 3 on refuse a history whose first
call has none. Where that call is withheld and another survives, the first survivor gets Google's documented stand-in.
"""

import re
from collections.abc import Sequence
from typing import Final

STAND_IN: Final = "skip_thought_signature_validator"
_NEEDS_NONE: Final = re.compile(r"gemini-[12](?![0-9])")
"""Models that take a history without signatures, and might refuse a made-up one."""


def survivor_without(signed: Sequence[bool], withheld: Sequence[bool], model: str) -> int | None:
    """Which of the calls of one choice, by whether they carry a signature and are withheld, gets the stand-in."""
    first = next((at for at, gone in enumerate(withheld) if not gone), None)
    if first is None or signed[first] or not any(signed[:first]) or _NEEDS_NONE.search(model):
        return None
    return first
