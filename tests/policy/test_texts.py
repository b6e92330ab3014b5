"""The texts that go into conversations: marked, filled in, and never a template of the call."""

from dataclasses import replace
from typing import Any

import pytest

from callfuse.model import MARKER, Finding, ToolCall
from callfuse.model.finding import Stretch
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import PLACEHOLDERS, LoopSettings, Rung

ARGUMENTS = '{"query": "{zebra} crossing"}'
ALL = " | ".join(f"{{{name}}}" for name in PLACEHOLDERS)
SEEN = "call 4 of search in a row with the same arguments, and nothing new came of it"
TRY = "Try other arguments or another tool, or continue with what is already known."
FILLED = f"search | {{}} | 4 | 3 | 300 | nothing {{{{was}}}} found | gpt-test | {SEEN} | {TRY}"


def verdict(
    arguments: Any = ARGUMENTS, *, rung: Rung | None = Rung.BLOCK, previous: str | None = "nothing {was} found"
) -> Verdict:
    """A call of `search` that has been found looping."""
    call = ToolCall("id", "search", arguments)
    return Verdict(call, Finding("repeat", "search", b"", 4, 3, 300.0, False, previous=previous), rung, 1)


def written(kind: str, template: str | None, found: Verdict, **more: Any) -> str:
    """One of the three texts, by the key of its setting."""
    settings = LoopSettings.model_validate({"error_messages": {kind: template} if template else {}, **more})
    if kind == "warning":
        return texts.warning(found.call, found.finding, settings, "gpt-test")
    return {"block": texts.block, "guidance": texts.guidance}[kind](found, settings, "gpt-test")


KINDS = ["block", "warning", "guidance"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_placeholder_is_filled_in(kind: str) -> None:
    """Braces in what is filled in are no placeholders."""
    assert written(kind, ALL, verdict()) == f"{MARKER} {FILLED.format(ARGUMENTS).replace('{{', '{').replace('}}', '}')}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_has_its_own_texts(kind: str) -> None:
    """Key by key: what it does not set is the text of all tools."""
    every = {"error_messages": dict.fromkeys(KINDS, "every tool")}
    own = {"per_tool": {"sea*": {"error_messages": {kind: "{tool_name} alone"}}}}
    assert written(kind, None, verdict(), **every, **own) == f"{MARKER} search alone"
    other = next(one for one in KINDS if one != kind)
    assert written(other, None, verdict(), **every, **own) == f"{MARKER} every tool"


@pytest.mark.parametrize("kind", KINDS)
def test_native_arguments_are_written_as_json(kind: str) -> None:
    """Not in the words of Python."""
    text = written(kind, "{arguments}", verdict({"query": "zebra", "deep": [None, True]}))
    assert text.replace(" ", "") == f'{MARKER}{{"query":"zebra","deep":[null,true]}}'


@pytest.mark.parametrize("kind", KINDS)
def test_the_marker_stands_once(kind: str) -> None:
    """In front, whether the setting has it or not."""
    for template in (None, "Stop.", f"{MARKER} Stop."):
        text = written(kind, template, verdict())
        assert text.startswith(f"{MARKER} ")
        assert text.count(MARKER) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_built_in_texts(kind: str) -> None:
    """They name the tool, the count and the limit, and do not print the arguments to be copied."""
    text = written(kind, None, verdict())
    assert "search" in text
    assert "4" in text
    assert "zebra" not in text


@pytest.mark.parametrize("kind", ["block", "guidance"])
def test_what_came_back_is_told(kind: str) -> None:
    """The last result, or that there was none, and the window."""
    assert "nothing {was} found" in written(kind, None, verdict())
    assert "(nothing)" in written(kind, None, verdict(previous=""))
    assert "300 s" in written(kind, None, verdict())


@pytest.mark.parametrize("kind", KINDS)
def test_no_result_is_no_empty_result(kind: str) -> None:
    """Where none is known nothing is said of it."""
    text = written(kind, None, verdict(previous=None))
    assert "returned" not in text
    assert "(nothing)" not in text
    assert written(kind, "It was {previous_result}.", verdict(previous=None)).endswith("It was (unknown).")


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_result_is_an_answer(kind: str) -> None:
    """Models take one for a failure. Of any other result nothing of the kind is said."""
    some = verdict(previous="Paris")
    finding = replace(some.finding, previous="[]", stretch=Stretch(found_nothing=True))
    for rung in (Rung.BLOCK, Rung.STEER, Rung.FORCE_TEXT):
        none = replace(some, finding=finding, rung=rung)
        assert "empty result" in written(kind, None, none)
        assert "empty result" not in written(kind, None, replace(some, rung=rung))
    assert ("use what you have" in written(kind, None, some)) == (kind == "warning")
    assert "use what you have" not in written(kind, None, none)


@pytest.mark.parametrize("kind", KINDS)
def test_secrets_are_starred(kind: str) -> None:
    """In arguments and results, also where a text is cut in the midst of one."""
    key = "sk-proj-" + "a1" * 200
    for arguments in (f'{{"api_key": "{key}"}}', f'{{"q": "{"x" * 280} {key}"}}'):
        text = written(kind, "{arguments} {previous_result}", verdict(arguments, previous="Authorization: Bearer abc"))
        assert "a1a1" not in text
        assert text.endswith("Authorization: ***")


def test_long_arguments_are_cut() -> None:
    """A megabyte of arguments does not go into a conversation."""
    assert len(written("block", "{arguments}", verdict("x" * 1_000_000))) < 1000


@pytest.mark.parametrize(
    ("outcome", "quoted"), [("token=abc", "token=***"), ("", "(nothing)"), (None, "(unknown)"), ("none", "none")]
)
def test_a_blown_fuse_quotes_as_others_do(outcome: str | None, quoted: str) -> None:
    """Secrets are starred, and no result is no empty one; a tool may have a text of its own."""
    every = {"error_messages": {"blown": "{tool_name}: {previous_result}"}}
    own = {"per_tool": {"pay*": {"error_messages": {"blown": "Never mind: {previous_result}"}}}}
    settings = LoopSettings.model_validate(every | own)
    assert texts.blown("search", outcome, 5, settings, "gpt-test") == f"{MARKER} search: {quoted}"
    assert texts.blown("pay", outcome, 5, settings, "gpt-test") == f"{MARKER} Never mind: {quoted}"
    assert texts.blown("", outcome, 5, settings, "gpt-test") == f"{MARKER} an answer: {quoted}"


def test_an_unjudged_call_is_named() -> None:
    """If it has a name."""
    assert texts.unchecked_call("search").startswith(MARKER)
    assert "search" in texts.unchecked_call("search")
    assert texts.unchecked_call("").startswith(MARKER)


@pytest.mark.parametrize(
    ("rungs", "value"),
    [
        ([], ""),
        ([None], ""),
        ([Rung.WARN, Rung.OBSERVE], ""),
        ([Rung.BLOCK], "block; kind=repeat; count=4"),
        ([Rung.STEER], "steer; kind=repeat; count=4"),
        ([Rung.STEER, Rung.BLOCK], "block; kind=repeat; count=4"),
        ([Rung.STEER, None], "steer; kind=repeat; count=4"),
    ],
)
def test_the_header_names_the_last_rung(rungs: list[Rung | None], value: str) -> None:
    """That withheld a call; nothing where none did."""
    assert texts.header([verdict(rung=rung) for rung in rungs]) == value
