"""What harnesses write into conversations is told from what people and tools say."""

from typing import Any

import pytest

from callfuse.harness import (
    MARKER,
    is_automatic,
    is_nudge,
    is_persons_no,
    is_placeholder,
    is_tool_report,
    strip_additions,
    strip_wrapping,
    typed_starts,
)
from callfuse.model.outcomes import Outcome, OutcomeKind, outcome_of


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


@pytest.mark.parametrize(
    "text",
    [
        "Continue.",
        " please continue with the next step!\n",
        "Proceed",
        "Step 3/50",
        "**Current step: 3 of 50**",
        "Turn 7",
    ],
)
def test_nudges(text: str) -> None:
    """They ask a model that has its results to go on, or count its steps, and say nothing else."""
    assert is_nudge(text, shows=False)


@pytest.mark.parametrize(
    "text", ["", "Go on.", "Continue with the tests.", "Step 3 is wrong.", "Do not continue", "x" * 300]
)
def test_what_is_no_nudge(text: str) -> None:
    """Whatever tells the model what to do."""
    assert not is_nudge(text, shows=False)


def test_captions_of_screenshots() -> None:
    """Only beside an image."""
    assert is_nudge("Screenshot after the action:", shows=True)
    assert not is_nudge("Screenshot after the action:", shows=False)
    assert not is_nudge("Click on the button here.", shows=True)


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
    (start,) = typed_starts([text])
    assert start is None if text.startswith("<a") and not typed else start == len(text) - len(typed)


def test_an_open_element_has_no_end() -> None:
    """It is not known where it was to end."""
    assert typed_starts(["<a>x</a>\n<b>\nLook"]) == [None]
    assert typed_starts(["<a>\n<b></b>\nLook"]) == [None]


@pytest.mark.parametrize(
    ("texts", "starts"),
    [
        (["a", "b"], [0, 0]),
        (["<a>", "b", "</a>"], [None, None, 4]),
        (["<a>x</a>\nb", "</a>"], [None, 4]),
        (["<a>", "</a>\nb\n<a>", "</a>\nc"], [None, None, 4]),
        (["<a>x</a>", "b", "<a>y</a>"], [None, None, 8]),
        (["<a>x</a>", "b", "<system-reminder>y</system-reminder>"], [None, None, 36]),
        (["<a>x</a>", "b", "<a>y</a>", "c"], [None, None, 8, 0]),
        (["b", "<system-reminder>y</system-reminder>"], [0, 36]),
        (["b", "c", "<system-reminder>y</system-reminder>", "<system-reminder>z</system-reminder>"], [0, 0, 36, 36]),
        (["b", "<a>x</a>", "<system-reminder>y</system-reminder>"], [None, None, 36]),
        (["b", "<system-reminder>y</system-reminder>", "<a>x</a>"], [None, None, 8]),
        (["b", "<system-reminder>y</system-reminder>", "c", "<system-reminder>z</system-reminder>"], [None] * 3 + [36]),
        (["<system-reminder>y</system-reminder>", "b", "<system-reminder>z</system-reminder>"], [None, None, 36]),
        (["</a>\nb", "c"], [None, None]),
        (["b\n</a>"], [None]),
        (["<a>\n</b>\n</a>\nc"], [13]),
        (["<system-reminder>List<T> </div></system-reminder>", "b"], [49, 0]),
        (["<system-reminder>\nA file:", "b", "</system-reminder>"], [None, None, 18]),
    ],
)
def test_where_typing_begins_in_several_texts(texts: list[str], starts: list[int | None]) -> None:
    """An element may reach over them, and nothing before the end of the last one is typed. A closing tag of an element
    that nothing has opened is a sign of a cut. A whole reminder is one text of a harness, whatever it quotes;
    what stands before all else stays typed if nothing else follows."""
    assert typed_starts(texts) == starts


def test_a_results_own_text() -> None:
    """Without callfuse's text and the reminders behind it."""
    added = f"found\n\n{MARKER} This is call 3.\n"
    assert strip_additions(added) == "found"
    assert (
        strip_additions("found\n<system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>") == "found"
    )
    assert strip_additions("<system-reminder>a</system-reminder> found") == "<system-reminder>a</system-reminder> found"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Chunk ID: a1b2c3\nWall time: 0.12 seconds\nProcess exited with code 0\nOutput:\nx\ny\n", "x\ny"),
        ("Wall time: 0.1 seconds\nProcess exited with code 1\nOriginal token count: 9\nOutput:\nx",
         "Process exited with code 1\nx"),
        ("Chunk ID: a1b2c3\nProcess exited with code 0\nOutput:\n", "Process exited with code 0"),
        ("Wall time: 10 seconds\nProcess running with session ID 42\nOutput:\n", "Process running with session ID 42"),
        ("Exit code: 0\nWall time: 0 seconds\nTotal output lines: 2\nOutput:\nx", "x"),
        ("<untrusted_context>\nx\n</untrusted_context>", "x"),
        ("<untrusted_context>\nx, cut", "x, cut"),
        ("<tool_use_error>No such tool</tool_use_error>", "No such tool"),
        ("Wall time: 5 years\nx", "Wall time: 5 years\nx"),
        ("x\nOutput:\ny", "x\nOutput:\ny"),
    ],
)  # fmt: skip
def test_what_a_harness_wraps_around_a_result(text: str, left: str) -> None:
    """It goes where the result is quoted; the state of a command stays, unless it is success with an output."""
    assert strip_wrapping(text) == left
    outcome = outcome_of(text)
    assert outcome is not None
    assert outcome.text == left


def test_placeholders() -> None:
    """Short phrases that say what is gone; a result about such a thing is none."""
    assert is_placeholder("[Old tool result content cleared]")
    assert is_placeholder("Old environment output: (12 lines omitted)")
    assert not is_placeholder("12 lines omitted from the report")


GEMINI = "Output: {output}\nProcess Group PGID: {id}"
OLD_GEMINI = (
    "Command: ls\nDirectory: (root)\nOutput: {output}\nError: (none)\nExit Code: 0\nSignal: (none)\n"
    "Background PIDs: {id}, 9{id}\nProcess Group PGID: {id}"
)
CODEX = "Chunk ID: {id}ab\nWall time: 1.0 seconds\nProcess running with session ID {id}\nOutput:\n{output}"
CLAUDE = (
    "{output}\nCommand running in background with ID: b{id}q. Output is being written to: "
    "{folder}tasks{slash}b{id}q.output. You will be notified when it completes."
)
FRAMES: list[Any] = [
    {"output": GEMINI},
    GEMINI,
    {"output": OLD_GEMINI},
    {"output": "Background PIDs: {id}", "seen": "{output}"},
    {"output": "{output}. Command moved to background (PID: {id}). Output hidden. Press Ctrl+B to view."},
    "{output}\n<shellId: {id} completed with exit code 0>",
    "{output}\n<command with shellId: {id} is still running after 30 seconds. The command is still running.>",
    "{output}\n<command started in detached background with shellId: {id}>",
    CODEX,
    CLAUDE.replace("{folder}", "/tmp/claude-501/p/").replace("{slash}", "/"),
    CLAUDE.replace("{folder}", "C:\\Temp\\claude\\p\\").replace("{slash}", "\\"),
    "{output}\nCommand was manually backgrounded by user with ID: bash_{id}",
]
"""Results of shells as Gemini CLI, qwen-code, GitHub Copilot CLI, Codex and Claude Code write them."""


def framed(frame: Any, output: str, id_: int) -> Outcome:
    """The outcome of an output in such a frame."""
    if isinstance(frame, dict):
        content: Any = {key: text.replace("{id}", f"{id_}").replace("{output}", output) for key, text in frame.items()}
    else:
        content = frame.replace("{id}", f"{id_}").replace("{output}", output)
    outcome = outcome_of(content)
    assert outcome is not None
    return outcome


@pytest.mark.parametrize("frame", FRAMES)
def test_what_a_harness_numbers_does_not_count(frame: Any) -> None:
    """The process, shell or session of a call is another each time; a number of the output is its own."""
    one = framed(frame, "7 files", 8763)
    assert one.digest == framed(frame, "7 files", 8812).digest
    assert one.digest != framed(frame, "8 files", 8763).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("PGID: 7 of 9", "PGID: 7 of 8"),
        ("the line Process Group PGID is in 3 files", "the line Process Group PGID is in 4 files"),
        ("shellId is used in 3 places", "shellId is used in 4 places"),
        ("a.py:3: Process running with session ID 3", "a.py:3: Process running with session ID 4"),
        ("tasks/a.outputs", "tasks/b.outputs"),
    ],
)
def test_the_same_words_elsewhere_count(one: str, other: str) -> None:
    """A line of a harness is known whole and by its place; a file about it is the tool's."""
    first, second = outcome_of(one), outcome_of(other)
    assert first is not None
    assert second is not None
    assert first.digest != second.digest


def test_copilots_exit_code_is_read() -> None:
    """It stands at the end of the output, behind the shell's id."""
    said = {code: framed("{output}\n<shellId: 3 completed with exit code {id}>", "x", code).kind for code in (0, 1)}
    assert said == {0: OutcomeKind.OK, 1: OutcomeKind.ERROR}
    empty = outcome_of("<shellId: 3 completed with exit code 0>")
    assert empty is not None
    assert empty.kind is OutcomeKind.NO_DATA


@pytest.mark.parametrize(
    "content",
    [
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, "
        "the new_string was NOT written to the file). STOP what you are doing and wait for the user.",
        "The user doesn't want to take this action right now. STOP what you are doing.",
        "exec command rejected by user",
        "patch rejected by user",
        {"error": "[Operation Cancelled] Reason: User denied execution."},
        "Command was cancelled by user before it could complete.",
        "The user denied this operation.",
        "Error: The user rejected permission to use this specific tool call.",
        "The user has declined to run this tool. DO NOT attempt to call this tool again.",
        "The user rejected this tool call. User feedback: not now",
        "User rejected the tool call for `delete` with id call_1",
        "Tool execution was not approved.",
        "The tool call was denied.",
    ],
)
def test_a_persons_no_is_no_error_of_the_tool(content: Any) -> None:
    """The call has failed, but nothing is said of the tool, nor of its next call."""
    outcome = outcome_of(content, is_error=True)
    assert outcome is not None
    assert (outcome.kind, outcome.error) == (OutcomeKind.ERROR, b"")


@pytest.mark.parametrize(
    "text",
    [
        "Access denied for user 'app'@'localhost'",
        "permission denied: /etc/shadow",
        "The user does not exist",
        "the file says: exec command rejected by user",
        "Request rejected by the server",
    ],
)
def test_other_refusals_are_the_tools(text: str) -> None:
    """Of a server, of a system, or words about a person's."""
    assert not is_persons_no(text)
    outcome = outcome_of(text, is_error=True)
    assert outcome is not None
    assert outcome.error
