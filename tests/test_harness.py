"""What harnesses write into conversations is told from what people and tools say."""

import pytest

from callfuse.harness import MARKER, is_automatic, is_placeholder, is_tool_report, strip_additions, typed_start


@pytest.mark.parametrize(
    "text",
    [
        f"{MARKER} Stop.",
        "\n <system-reminder>Mind the todo list.</system-reminder>",
        "<environment_details>\nTime: 9:00",
        "Validation feedback:\nNo answer was found.",
        "Your previous response failed the application's validation (this is automated feedback, not a message from the"
        " user):\n\nPlease call a tool.",
        '<pyai:validation_errors>[{"type": "missing"}]</pyai:validation_errors>',
        "Tool call error:\n\n<error>\nNo tool calls found in the response. Every response MUST include one.\n</error>",
        "Tool call error: <error> No tool calls found in the response.",
        "You have stopped calling tools without finishing. You have one more turn.",
        "[System: You previously returned an empty response. Go on.]",
        "[The previous response was interrupted before it completed.]",
    ],
)
def test_what_nobody_has_typed(text: str) -> None:
    """callfuse's own texts, reminders, automatic retries."""
    assert is_automatic(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Go on.",
        f"It says {MARKER}.",
        "Tool call error: what does that mean?",
        "Your previous response failed.",
        "You have stopped calling tools. Why?",
        "I see a <system-reminder> in the log.",
    ],
)
def test_what_somebody_may_have_typed(text: str) -> None:
    """Words like those of harnesses among others."""
    assert not is_automatic(text)


def test_reports_of_tools() -> None:
    """As Cline and Roo write them into user messages."""
    assert is_tool_report("[read_file for 'a.py'] Result: import os")
    assert is_tool_report("[list_files] Result:\nnothing")
    assert not is_tool_report("What is [list_files] Result: for?")


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("", ""),
        ("Look: <a>x</a> y", "Look: <a>x</a> y"),
        ("<a>x</a>\nLook", "\nLook"),
        (" <a b='c'>x</a>\n<d>y</d >\nLook", "\nLook"),
        ("<a>x</a> y </a> z", " z"),
        ("<a>x</a", ""),
        ("<3 you", "<3 you"),
    ],
)
def test_where_typing_begins(text: str, typed: str) -> None:
    """Behind the elements that a text begins with, up to the last closing tag."""
    start = typed_start(text)
    assert start is None if text.startswith("<a") and not typed else start == len(text) - len(typed)


def test_an_open_element_has_no_end() -> None:
    """It is not known where it was to end."""
    assert typed_start("<a>x</a>\n<b>\nLook") is None
    assert typed_start("<a>\n<b></b>\nLook") is None


def test_a_results_own_text() -> None:
    """Without callfuse's text and the reminders behind it."""
    added = f"found\n\n{MARKER} This is call 3.\n"
    assert strip_additions(added) == "found"
    assert (
        strip_additions("found\n<system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>") == "found"
    )
    assert strip_additions("<system-reminder>a</system-reminder> found") == "<system-reminder>a</system-reminder> found"


def test_placeholders() -> None:
    """Short phrases that say what is gone; a result about such a thing is none."""
    assert is_placeholder("[Old tool result content cleared]")
    assert is_placeholder("Old environment output: (12 lines omitted)")
    assert not is_placeholder("12 lines omitted from the report")
