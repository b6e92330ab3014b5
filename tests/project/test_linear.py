"""No regular expression that reads a foreign text takes more steps than in proportion to its length.

Every one of the package is found, and attacked with pieces of what it fits, repeated. Its steps are counted.
"""

import importlib
import pkgutil
import re
import sys
from random import Random
from typing import Any

import pytest

import callfuse
from tests.support.regex import Machine, attacks, steps

LENGTH = 300
CHEAP = 20
"""Steps a character that need no second look: what is quadratic takes more at this length."""
ATTACKS = 40

OPERATORS = (
    "callfuse.config",
    "callfuse.cli",
    "callfuse.demo",
    "callfuse.testing",
    "callfuse.proxy",
    "callfuse.reference",
    "callfuse.stores",
)
"""Rooms that read what operators and tests write."""

ANCHORED = {
    "callfuse.commands.syntax._ARGUMENT",
    "callfuse.commands.syntax._BLANKS",
    "callfuse.commands.syntax._SPACE",
    "callfuse.conversations.identity._OTHER_VENDOR",
    "callfuse.detect.effects._SELECT",
    "callfuse.detect.facts._ONE_ARGUMENT",
    "callfuse.detect.no_difference._SAYS",
    "callfuse.detect.runaway._BLANK",
    "callfuse.dialects.gemini.parts._STEP",
    "callfuse.dialects.session_ids._IN_USER_ID",
    "callfuse.harness._REPORT",
    "callfuse.harness._RETRY_OF_MINI",
    "callfuse.offline.files._LISTS",
    "callfuse.wire.json_array._BRACE",
    "callfuse.wire.json_array._REST_OF_STRING",
    "callfuse.wire.jsontext._SCALAR",
    "callfuse.wire.jsontext._STRING",
}
"""Only tried at one place of a text, by `match` or `fullmatch`."""

SHORT = {
    "callfuse.detect.no_difference._COMMENT": 4096,
    "callfuse.harness._MAY_BEGIN": 400,
    "callfuse.harness._OTHERS": 400,
    "callfuse.harness._WORD": 400,
    "callfuse.model.outcomes.errors._STATUS": 701,
    "callfuse.model.outcomes.reading._COMPLAINER": 400,
    "callfuse.model.outcomes.reading._ERROR": 400,
    "callfuse.model.outcomes.reading._EXIT_CODE": 701,
    "callfuse.model.outcomes.reading._NO_DATA": 600,
    "callfuse.model.outcomes.unknown._COMPLAINT": 400,
}
"""Only tried on so many characters at most."""

NOT_IMPORTED = re.compile(r".*\.(__main__|integrations\..*)")
"""Modules that run a program, or import those of somebody else."""


def patterns() -> dict[str, re.Pattern[Any]]:
    """Every compiled pattern of the package's modules, by its name; those in tuples and dicts too."""
    found: dict[str, re.Pattern[Any]] = {}
    for info in pkgutil.walk_packages(callfuse.__path__, "callfuse."):
        if not NOT_IMPORTED.fullmatch(info.name):
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                many = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
                for at, one in enumerate(many):
                    if isinstance(one, re.Pattern):
                        found.setdefault(f"{info.name}.{name}" + (f".{at}" if one is not value else ""), one)
    return found


PATTERNS = patterns()
FOREIGN = sorted(name for name in PATTERNS if not name.startswith(OPERATORS))


def growth(machine: Machine, parts: tuple[str, str, str], *, anchored: bool) -> float:
    """How many times the steps are when the text has twice the length; 1 where they are few."""
    head, repeated, tail = parts
    times = LENGTH // len(repeated)
    once = steps(machine, head + repeated * times + tail, anchored=anchored)
    if once < CHEAP * LENGTH:
        return 1.0
    return steps(machine, head + repeated * (2 * times) + tail, anchored=anchored) / once


@pytest.fixture(autouse=True)
def _deep() -> Any:
    """A repeated group is a recursion of the machine."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FOREIGN if name not in SHORT])
def test_steps_grow_with_the_length(name: str) -> None:
    """Whatever piece of what it fits is repeated."""
    machine = Machine(PATTERNS[name])
    for parts in attacks(machine, Random(name), ATTACKS):
        assert growth(machine, parts, anchored=name in ANCHORED) < 2.6, (name, parts)


def test_the_tables_are_of_today() -> None:
    """Each name is that of a pattern."""
    assert {*ANCHORED, *SHORT} <= PATTERNS.keys()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (rb"(?:\x1b|\\u001b)\][^\x07\x1b]*+(?:\x07|\x1b\\)", "\\u001b]"),
        (r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|\s+', '\\"'),
        (r"([^/:?]*):(generateContent)", "a"),
        (r"\s*x", " "),
    ],
)
def test_what_is_quadratic_is_found(pattern: Any, text: str) -> None:
    """Patterns that were quadratic once."""
    assert growth(Machine(re.compile(pattern)), ("", text, ""), anchored=False) > 3.5


@pytest.mark.parametrize("name", FOREIGN)
def test_the_machine_finds_what_re_finds(name: str) -> None:
    """Else its steps would prove nothing."""
    machine = Machine(PATTERNS[name])
    for head, repeated, tail in attacks(machine, Random(name), 30):
        text = head + repeated * 3 + tail
        read: Any = text.encode("latin-1", "replace") if machine.is_bytes else text
        read_text = read.decode("latin-1") if machine.is_bytes else text
        found = [match.span() for match in PATTERNS[name].finditer(read)]
        assert machine.find_all(read_text) == found, (name, text)
