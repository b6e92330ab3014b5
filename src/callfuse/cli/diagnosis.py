"""Format the results of `callfuse doctor`: one value for each check, as lines or as JSON."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from textwrap import wrap
from typing import Any, Final

from callfuse.observe.printable import printable

WIDTH: Final = 100
"""The width of a line."""
INDENT: Final = 20
WHOLE: Final[dict[str, Any]] = {"break_long_words": False, "break_on_hyphens": False}
"""Options that keep words and paths whole, so that they can be copied from a terminal."""


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `area`: a word, such as `upstream`; `found`: the result in words; `advice`: what to do
    about it, empty if all is well."""

    area: str
    state: CheckState
    found: str
    advice: str = ""


def ok(area: str, found: str) -> Check:
    """Make a check of something that works."""
    return Check(area, CheckState.OK, found)


def note(area: str, found: str, advice: str) -> Check:
    """Make a check of something that works as configured, which may not be intended. `advice`: how to change it."""
    return Check(area, CheckState.NOTE, found, advice)


def warning(area: str, found: str, advice: str) -> Check:
    """Make a check of something that works, but probably not as intended."""
    return Check(area, CheckState.WARNING, found, advice)


def failed(area: str, found: str, advice: str) -> Check:
    """Make a check of something that does not work."""
    return Check(area, CheckState.FAILED, found, advice)


def as_lines(checks: Iterable[Check]) -> Iterator[str]:
    """Format the checks for a person: state, area and result, and below it the advice."""
    for one in checks:
        yield from _block(f"{one.state:<9}{printable(one.area):<{INDENT - 9}}", one.found)
        if one.advice:
            yield from _block(" " * (INDENT - 3) + "-> ", one.advice)


def as_json(checks: Iterable[Check]) -> str:
    """Format the checks for a program, with `well`: whether all of them are well."""
    found = [*checks]
    return json.dumps({"well": is_well(found), "checks": [asdict(one) for one in found]}, indent=2)


def counted(count: int, what: str) -> str:
    """Format a number with its noun: `1 call`, `2 calls`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def is_well(checks: Iterable[Check]) -> bool:
    """Whether nothing needs to be done."""
    return all(one.state in (CheckState.OK, CheckState.NOTE) for one in checks)


def _block(head: str, text: str) -> list[str]:
    """Return a text after a head, with further lines indented. Control characters are replaced, because the text may
    quote foreign data."""
    lines = [part for line in text.splitlines() for part in wrap(printable(line), WIDTH - INDENT, **WHOLE)] or [""]
    return [f"{head}{lines[0]}", *(f"{'':<{INDENT}}{line}" for line in lines[1:])]
