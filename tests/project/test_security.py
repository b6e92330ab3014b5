"""`docs/security.md` is true: every test that it names exists, every promise and limit has one, defaults are right."""

import ast
import re

from callfuse.config import Config
from callfuse.policy.settings import LoopSettings
from tests.project.sources import PROJECT, document, quoted, rows

PAGE = document("docs/security.md")
UNITS = {"KiB": 1024, "MiB": 1024 * 1024, "s": 1, "": 1}
LIMIT = re.compile(r"max_(sessions|rounds|.+_bytes|.+_s)|(read|steer|callback)_timeout_s")
"""Settings that bound what anybody can make callfuse keep, or wait for."""


def named_tests() -> list[str]:
    """Every test that the page names, a file or one function in it."""
    return [text for text in quoted(PAGE) if text.startswith("tests/")]


def functions(path: str) -> set[str]:
    """The functions at the top of a file."""
    body = ast.parse((PROJECT / path).read_text(encoding="utf-8")).body
    return {one.name for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def missing_tests(names: list[str]) -> list[str]:
    """Those that do not exist."""
    wrong = []
    for name in names:
        path, _, function = name.partition("::")
        if not (PROJECT / path).is_file() or (function and function not in functions(path)):
            wrong.append(name)
    return wrong


def test_every_test_that_it_names_exists() -> None:
    """By file and name."""
    assert len(named_tests()) > 40
    assert missing_tests(named_tests()) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    """A file, and a function of a file."""
    wrong = ["tests/project/test_nothing.py", "tests/project/test_security.py::test_nothing"]
    assert missing_tests(["tests/project/test_security.py", *wrong]) == wrong


def test_every_promise_has_a_test() -> None:
    """In the last column."""
    for heading in ("Promises", "Limits", "In-chat commands"):
        table = rows(PAGE, heading)
        assert table
        assert [row for row in table if not named_in(row[-1])] == []


def test_no_promise_is_made_twice() -> None:
    """Each stands in one row, and no row names a test twice."""
    table = rows(PAGE, "Promises")
    promises = [row[1] for row in table]
    assert len(promises) == len(set(promises))
    assert [row[-1] for row in table if len(named_in(row[-1])) != len(set(named_in(row[-1])))] == []


def named_in(cell: str) -> list[str]:
    """The tests in a cell."""
    return [text for text in quoted(cell) if text.startswith("tests/")]


def test_every_limit_is_listed_with_its_default() -> None:
    """Each setting that bounds bytes, time or number."""
    config = Config()
    found = {quoted(name)[0]: default for name, default, *_ in rows(PAGE, "Limits")}
    for name, text in found.items():
        section, _, key = name.rpartition(".")
        number, _, unit = text.partition(" ")
        assert getattr(getattr(config, section or "tool_call_loop"), key) == int(number) * UNITS[unit]
    assert {name for name in LoopSettings.model_fields if LIMIT.fullmatch(name)} == {
        name for name in found if "." not in name
    }
