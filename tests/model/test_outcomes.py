"""Outcomes: which results are the same, of which kind they are, what they say of themselves, and which say nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model.outcomes import SHORT_TEXT, Outcome, OutcomeKind, outcome_of, same_outcome
from callfuse.model.outcomes import normalise as normalising
from callfuse.model.outcomes.normalise import normalise
from callfuse.wire.values import MOST_INSIDE
from tests.support.examples import more_examples

UUID = "550e8400-e29b-41d4-a716-446655440000"
OTHER_UUID = "0b1c2d3e-ffff-4eee-8ddd-123456789abc"
PADDING = "x" * 200
OWN = "[callfuse] This is call 3 of search in a row."
REMINDER = "<system-reminder>\nThe todo list has 3 open items.\n</system-reminder>"


def known(content: Any, is_error: bool | None = None) -> Outcome:
    """The outcome of a result that has one."""
    outcome = outcome_of(content, is_error)
    assert outcome is not None
    return outcome


def same(one: Any, other: Any) -> bool:
    """Whether two results are known and equal."""
    return known(one).digest == known(other).digest


def test_what_is_kept_is_short() -> None:
    """A result that comes again is not read again, unless it could fill the memory; the client's flag is part of it."""
    short, long = "File not found: a.py", "x" * 3000
    assert outcome_of(short) is outcome_of(short)
    assert outcome_of(long) is not outcome_of(long)
    assert (known(short).kind, known(short, is_error=False).kind) == (OutcomeKind.ERROR, OutcomeKind.OK)


def mcp(text: str, *, is_error: bool = False) -> str:
    """A text as harnesses write a tool result of the Model Context Protocol into a text."""
    return json.dumps({"meta": None, "content": [{"type": "text", "text": text}], "isError": is_error})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://a\x07link\x1b]8;;\x1b\\", "link"),
        ('{"output": "\\u001b[31mred\\u001b[0m"}', '{"output": "red"}'),
        ('{"output": "\\u001b]0;a title\\u0007red\\u001b]8;;\\u001b\\\\"}', '{"output": "red"}'),
        ({"output": "\x1b[31mred\x1b[0m"}, {"output": "red"}),
        ("at 2026-11-20T10:00:00.123Z", "at 2026-11-21T09:59:07.001Z"),
        ("at 2026-11-20T10:00:00.123Z", "at 2026-11-21T09:59:07Z"),
        ("[10:00:01] done", "[23:59:59] done"),
        ("took 850 ms", "took 1.2 s"),
        ("took 850 µs", "took 1.2 ms"),
        ("took 3 minutes", "took 12 hours"),
        ("took 1m 30s", "took 45s"),
        ("took 1h2m3s", "took 4 days"),
        ("Elapsed: 4.02s", "Elapsed: 17s"),
        (f"job {UUID}", f"job {OTHER_UUID}"),
        (f"job_{UUID}", f"job_{OTHER_UUID}"),
        ("job abcdef01-e29b-41d4-a716-446655440000", f"job {UUID}"),
        ("commit 3f2a9bc1", "commit a0b1c2d3e4f5a6b7"),
        ("commit a1b2c3d", "commit 9f8e7d6"),
        ("commit abcde1f", "commit deadb33f"),
        ("container deadb33f", "container 0badcafe"),
        ("tmp_3f2a9bc1d", "tmp_a0b1c2d3e"),
        ("request req_011CSHoEeqs5C35K2UUqR7Fy", "request req_9aXbY2cZ0dW7eV5fU3gT1hS8"),
        ("item 01ARZ3NDEKTSV4RRFFQ69G5FAV", "item 01BX5ZZKBKACTAV9WXYZ3MPQRS"),
        ("Chunk ID: a1b2c3\nWall time: 0.12 seconds\nOutput:\nx", "Chunk ID: fedcba\nWall time: 3 seconds\nOutput:\nx"),
        ("pid 4711", "pid 42"),
        ([{"type": "text", "text": "took 3 s"}], [{"type": "text", "text": "took 4 s"}]),
        ("Done in 1.20s.", "Done in 1.31s."),
        ("Total time: 3 s", "Total time: 1m 2s"),
        (f"mean 0.008029 s {PADDING}", f"mean 0.007819 s {PADDING}"),
        (f"0x7ffff7f50 in go() {PADDING}", f"0x7ffff7f59 in go() {PADDING}"),
        ("No results in 12 ms", "No results in 13 ms"),
        ("The build is still running (12 s)", "The build is still running (24 s)"),
        ([{"json": {"took_ms": 12}}], [{"json": {"took_ms": 13}}]),
        ({"ok": True, "took_ms": 12}, {"ok": True, "took_ms": 13}),
        ("done\n", "done"),
        ("due 2026-11-23", "due 2026-12-01"),
        ("on 23/11/2026", "on 1/12/2026"),
        ("23 Nov 2026 10:00:05 +0000", "3 Nov 2026 23:59:59 +0000"),
        ("[23/Nov/2026:10:00:05 +0000] GET /", "[24/Nov/2026:00:00:00 +0000] GET /"),
        ("Mon Nov 23 10:00:05 UTC 2026", "Mon Nov  2 09:07:00 UTC 2026"),
        ("November 23, 2026", "November 2, 2026"),
        ("Nov 23 10:00:05 host sshd", "Nov  3 23:59:59 host sshd"),
        ("-rw-r--r-- 1 root root 20 Aug  8 04:04 a", "-rw-r--r-- 1 root root 20 Aug 12 23:59 a"),
        ("20261123T100005Z", "20261124T235959Z"),
        ("at 9:05 AM", "at 12:40 PM"),
        ("3 passed in 0.04s", "3 passed in 1.52s"),
        ("5/5 [00:03<00:00, 1.5it/s]", "5/5 [01:12<00:00, 20.1it/s]"),
        ("done, 25.28 MiB/s", "done, 3 MiB/s"),
        ({"timestamp": 1763892005}, {"timestamp": 1763892009.5}),
        ({"created_at": 1763892005}, {"created_at": 1763892009123}),
        ('{\n  "elapsed": 0.52\n}', '{\n  "elapsed": 12\n}'),
        ({"said": '{"requestId": "ab-12"}'}, {"said": '{"requestId": "x-9"}'}),
        ("level=info pid=17 elapsed=3 done", "level=info pid=4711 elapsed=12.5 done"),
        ("Request ID: ab-12\nok", "Request ID: cd-9\nok"),
        ("x-request-id: 12ab-9", "x-request-id: 7-zz"),
        ("Elapsed time: 4.02 seconds", "Elapsed time: 1m 30s"),
        ("Process ID: 17", "Process ID: 4711"),
        ({"duration_in_seconds": 3}, {"duration_in_seconds": 4}),
    ],
)
def test_what_changes_from_run_to_run_does_not_count(one: Any, other: Any) -> None:
    """Colours, times, durations, dates, ids, and fields named like them are taken out before results are compared."""
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("You are at (4,2)", "You are at (4,3)"),
        ("Row 3 selected", "Row 4 selected"),
        ({"rolled": 5}, {"rolled": 2}),
        ("rolled 5", "rolled 2"),
        ("progress 40 %", "progress 55 %"),
        ("jobs: 17, 18", "jobs: 18, 19"),
        ("17 R train\n18 PD test", "18 R train\n19 PD test"),
        ({"id": 17}, {"id": 18}),
        ({"order_id": 17}, {"order_id": 18}),
        ({"created": 2, "started": 1}, {"created": 5, "started": 1}),
        ({"epoch": 3, "loss": 0.5}, {"epoch": 4, "loss": 0.5}),
        ("3 passed", "4 passed"),
        ("3 files, 1024 bytes", "12 files, 9 bytes"),
        ("size 1.5 MB", "size 2.5 MB"),
        ("load 0.5", "load 12"),
        ("3x4 pixels", "1920x1080 pixels"),
        ("version 1.2.3", "version 1.2.4"),
        ("you walked 3 m", "you walked 4 m"),
        ("a.py:12:34", "a.py:13:34"),
        ("score 3:2", "score 4:2"),
        ("1,234 rows", "1,235 rows"),
        ("-5", "-6"),
        ("rapid: 3", "rapid: 4"),
        ("exit code: 0, 3 left", "exit code: 0, 2 left"),
        ("No results on page 3 of 9", "No results on page 4 of 9"),
    ],
)
def test_plain_numbers_are_kept_in_results(one: Any, other: Any) -> None:
    """A counter that moves is progress; in errors all numbers are replaced."""
    assert not same(one, other)
    assert not same(json.dumps({"output": one}), json.dumps({"output": other}))
    assert known(one, is_error=True).digest == known(other, is_error=True).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mean 0.008029 s", "mean 0.007819 s"),
        ("best of 3: 12.5 ms per loop", "best of 3: 12.1 ms per loop"),
        ("0x000055555555f50 in go ()", "0x000055555555f59 in go ()"),
        ("at 0x7ffee3", "at 0xdeadbeef"),
        ({"mean": "0.008029 s"}, {"mean": "0.007819 s"}),
    ],
)
def test_what_was_measured_counts_in_short_results(one: Any, other: Any) -> None:
    """A benchmark that is run again, a debugger that is stepped: durations and addresses; not in errors."""
    assert not same(one, other)
    assert known(one, is_error=True).digest == known(other, is_error=True).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("found a", "found b"),
        ("yes", "no"),
        ("x" * 10_000 + "a", "x" * 10_000 + "b"),
        ("played e4", "played d4"),
        ("page2024 is open", "code2024 is open"),
        ("utf8", "utf16le"),
        ("facade", "decade"),
        ("a\nb", "ab"),
        ("[1, 2]", "[1, 2, 3]"),
        ("[1]", "[]"),
        ("0 results", "3 results"),
        ("exit code: 0", "exit code: 1"),
        ("not found", "found"),
        (["a", "b"], ["ab"]),
        (["a", "b"], ["b", "a"]),
        ([{"type": "image", "source": {"data": "AAAA1"}}], [{"type": "image", "source": {"data": "AAAA2"}}]),
        ([{"type": "image_url", "image_url": {"url": "a1"}}], [{"type": "image_url", "image_url": {"url": "a2"}}]),
        ([{"type": "input_file", "file_id": "file-1"}], [{"type": "input_file", "file_id": "file-2"}]),
        ([{"type": "computer_screenshot", "file_id": "f1"}], [{"type": "computer_screenshot", "file_id": "f2"}]),
        ([{"inlineData": {"data": "AAAA1"}}], [{"inlineData": {"data": "AAAA2"}}]),
        ([{"document": {"source": {"bytes": "A1"}}}], [{"document": {"source": {"bytes": "A2"}}}]),
        ([{"type": "text", "text": "a"}, {"type": "image", "d": 1}], [{"type": "text", "text": "a"}]),
        ([{"text": "hello", "author": "a"}], [{"text": "hello", "author": "b"}]),
        ([{"type": "document", "document": {"data": "a"}}], [{"type": "document", "document": {"data": "b"}}]),
        ({"a": "x"}, {"a": "y"}),
        ("a", ""),
    ],
)
def test_everything_else_counts(one: Any, other: Any) -> None:
    """The full text and every other part: media by bytes, URL or id, with their digits."""
    assert not same(one, other)


def test_an_error_is_not_the_same_as_its_text() -> None:
    """The flag is part of the outcome."""
    assert not same_outcome(outcome_of("x", is_error=True), outcome_of("x", is_error=False))
    assert same_outcome(outcome_of("x", is_error=False), outcome_of("x"))


@pytest.mark.parametrize(
    ("plain", "added"),
    [
        ("a", f"a\n\n{OWN}"),
        ("a\n", f"a\n\n\n{OWN}"),
        ("", OWN),
        ("a", f"a\n\n{OWN}\n\n{OWN}"),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": f"a\n\n{OWN}"}]),
        ([{"type": "image", "d": 1}], [{"type": "image", "d": 1}, {"type": "text", "text": OWN}]),
        ({"a": 1}, {"a": 1, "callfuse": OWN}),
        ("a", f"a\n\n{REMINDER}"),
        ("a", f"a\n\n{REMINDER}\n{REMINDER}\n"),
        ("a", f"a\n\n{REMINDER}\n\n{OWN}"),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}, {"type": "text", "text": REMINDER}]),
        (
            [{"type": "text", "text": "a"}],
            [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
        ),
        ([{"type": "image", "d": 1}], [{"type": "image", "d": 1, "cache_control": {"type": "ephemeral"}}]),
    ],
)
def test_what_is_not_the_tools_does_not_count(plain: Any, added: Any) -> None:
    """Own warnings, a harness's reminders behind a result and marks for caches leave it the result that it was."""
    assert same(plain, added)
    assert "callfuse" not in known(added).text
    assert "reminder" not in known(added).text


def test_a_reminder_within_a_text_is_the_tools() -> None:
    """Only those at the end are a harness's: a file may hold such words too."""
    assert not same(f"a {REMINDER} b", "a b")
    assert not same("a <system-reminder>", "a")


@pytest.mark.parametrize(
    "text",
    [
        "[Old tool result content cleared]",
        "[Tool result removed to save context]",
        "[Old tool result content cleared — original size: 5120 chars]",
        "[Output removed to save context - information superseded or no longer needed]",
        "[Output removed to save context - information superseded]\nread(path: a.py) → done",
        "[[NOTE] This file read has been removed to save space in the context window. Refer to the latest file read.]",
        "Old environment output: (12 lines omitted)",
        "Visited URL https://example.com/a\nContent omitted",
        "The tool result was too large!",
        "[Trimmed: search output — 5120 chars → 200 char preview]\nThe first...",
        "<tool_output_masked>\n[Tool output (1.2MB) masked to preserve context window.]\n</tool_output_masked>",
        "[tool result elided]",
        "[Previous tool result truncated — was 5120 chars]",
        "[cleared]",
        "<MASKED>",
        "[Omitted]",
        "[screenshot]",
        "(previous output omitted)",
        "<tool output truncated>",
        "Old result compacted",
        "[result pruned]",
    ],
)
def test_a_placeholder_says_nothing(text: str) -> None:
    """What a client puts where a result stood leaves the outcome unknown."""
    assert outcome_of(text) is None
    assert outcome_of([{"type": "text", "text": text}]) is None
    assert outcome_of([{"type": "text", "text": text}, {"type": "text", "text": text}]) is None


@pytest.mark.parametrize(
    "content",
    [
        "output of the tool:\n3 lines removed",
        "The result was removed by hand " + "x" * 100,
        "[3 rows removed]",
        "[item removed from cart]",
        "File removed.",
        "cleared",
        "[tool output truncated] the rest of the output",
        "[Tool output truncated]\nline one\nline two",
        "[]",
        [{"type": "text", "text": "[image omitted]"}, {"type": "image", "d": 1}],
        [{"type": "text", "text": "[result removed]"}, {"type": "text", "text": "and here is another"}],
    ],
)
def test_a_text_about_results_is_no_placeholder(content: Any) -> None:
    """Longer texts, several lines, other things that are gone, and what has a result beside it, are results."""
    assert outcome_of(content) is not None


ERRORS: list[Any] = [
    "Error: no such file",
    "ERROR - disk full",
    "ValueError: bad",
    "java.lang.IllegalStateException: closed",
    "error[E0425]: cannot find value",
    "[error] x",
    "<tool_use_error>File has not been read yet.</tool_use_error>",
    "Traceback (most recent call last):",
    "fatal: not a git repository",
    "An error occurred while fetching the page",
    "Error executing SQL query: syntax error",
    "MCP error -32602: Invalid arguments",
    "The tool failed",
    "Failed to get file contents.",
    'Validation failed for tool "edit": path is missing',
    "Could not find the exact text",
    "Invalid arguments for tool search",
    "Unknown tool: serach",
    "Tool 'x' not found",
    "File src/a.py does not exist",
    "serach is not a valid tool, try one of [search].",
    "Command timed out after 120 s",
    "HTTP 404 Not Found",
    "Request failed with status code 503",
    "503 Service Unavailable",
    "Permission denied",
    "/bin/bash: line 1: javac: command not found",
    "cat: a.txt: No such file or directory",
    "mv: cannot stat 'a'",
    "some output\n\n(Command exited with code 2)",
    "Exit code: 1\nOutput:\nnope",
    "Chunk ID: a1b2c3\nWall time: 0.1 seconds\nProcess exited with code 127\nOutput:\n",
    "<returncode>1</returncode>\n<output>\nnope\n</output>",
    "2 tests run\n[The command completed with exit code 1.]",
    "[{'error': 'Not logged in.'}]",
    '{"error": "no such table"}',
    '{"error": {"code": 404, "message": "gone"}}',
    '{"booking_status": false, "error": "Card not registered"}',
    '{"isError": true, "content": [{"type": "text", "text": "x"}]}',
    '{"status": "error", "message": "x"}',
    '{"success": false}',
    '{"stdout": "", "stderr": "x", "exit_code": 2}',
    '{"output": "x", "metadata": {"exit_code": 1}}',
    '{"object": "error", "status": 400, "message": "x"}',
    '{"data": null, "errors": [{"message": "x"}]}',
    '{"server": "s", "execution_result": {"error": "API error"}}',
    mcp("Error: relation does not exist"),
    mcp('{"error": "x"}'),
    mcp("x", is_error=True),
    {"error": "no such table"},
    [{"json": {"error": "no such table"}}],
    ["some output", {"outcome": {"type": "exit", "exit_code": 1}}],
]
RESULTS: list[Any] = [
    "all good",
    "we talked at length about an error",
    "error_handler = None\n",
    "//! Error types for sources.",
    "Error handling is described below.",
    "Errors are rare.",
    "class NotFoundError(Exception):\n    pass",
    "description: What to do when an item is not found",
    "Exit code: 0\nOutput:\nError: printed by a test",
    "<returncode>0</returncode>\n<output>\nfine\n</output>",
    "The program returns exit code 1 if nothing matches.",
    '{"error": null, "data": {"a": 1}}',
    '{"error": "", "data": {"a": 1}}',
    '{"error": false, "data": {"a": 1}}',
    '{"errors": 0, "passed": 12}',
    '{"errors": [{"line": 3}], "checked": ["a.py"]}',
    '{"status": 200, "body": "x"}',
    '{"success": true, "name": "x"}',
    '{"exit_code": 0, "stdout": "x"}',
    '{"name": "Bob", "orders": []}',
    '[{"type": "dir", "size": 0, "name": "src"}]',
    mcp("fine"),
    [{"type": "image", "d": 1}],
    5,
    True,
]
NOTHING: list[Any] = [
    "",
    None,
    [],
    {},
    " \n",
    "[]",
    "{}",
    "null",
    "None",
    "[(None,)]",
    "No results found.",
    "No results found for 'quantum computing'.",
    'No matches found for "JsonParser" in /src',
    "no matches",
    "Nothing found",
    "Not found",
    "0 results",
    "Found 0 files",
    "(0 rows)",
    "(no output)",
    "(Bash completed with no output)",
    "Your command ran successfully and did not produce any output.",
    "Tool ran without output or errors",
    "The list is empty.",
    "Exit code: 0\nWall time: 0.1 seconds\nOutput:\n",
    "<returncode>0</returncode>\n<output>\n</output>",
    "[The command completed with exit code 0.]\n[Current working directory: /src]",
    "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>",
    '{"results": []}',
    '{"anything": []}',
    '{"results": [], "total": 0, "query": "x", "status": "success"}',
    '{"total_count": 0, "incomplete_results": false, "items": []}',
    '{"total_count": 0}',
    '{"success": true, "data": {}, "status_code": 200}',
    '{"status": "success_no_data", "message": "No results found for this query."}',
    mcp("[]"),
    mcp('{"results": []}'),
    {"results": []},
    [{"json": {"results": []}}],
    [{"type": "text", "text": ""}],
]


@pytest.mark.parametrize("content", ERRORS, ids=repr)
def test_a_result_that_says_so_is_an_error(content: Any) -> None:
    """By how it begins, by the exit code that it tells, or by the keys of an object, also within texts."""
    assert known(content).kind is OutcomeKind.ERROR


@pytest.mark.parametrize("content", RESULTS, ids=repr)
def test_a_result_about_errors_is_none(content: Any) -> None:
    """Words of errors elsewhere, empty error fields, and counts of them, are results like any other."""
    assert known(content).kind is OutcomeKind.OK


@pytest.mark.parametrize("content", NOTHING, ids=repr)
def test_emptiness_in_all_its_forms_is_no_data(content: Any) -> None:
    """Nothing at all, words for it, and objects that should bring something and do not."""
    assert known(content).kind is OutcomeKind.NO_DATA


def test_the_clients_own_flag_decides_about_errors() -> None:
    """Where a vendor has one, the words do not matter."""
    assert known("Error: handled", is_error=False).kind is OutcomeKind.OK
    assert known("all good", is_error=True).kind is OutcomeKind.ERROR
    assert known("", is_error=True).kind is OutcomeKind.ERROR
    assert known("", is_error=False).kind is OutcomeKind.NO_DATA


@pytest.mark.parametrize(
    "content",
    [
        "Command still running (session calm-reef, pid 42). Use process for follow-up.",
        "(no new output)\n\nProcess still running.",
        "Chunk ID: a1b2c3\nWall time: 10 seconds\nProcess running with session ID 42\nOutput:\n",
        "<status>running</status>\n<stdout></stdout>",
        "x" * 5000 + "\n[The command has no new output after 30 seconds. You may wait longer.]",
        "Results are not ready yet.",
        '{"status": "running", "job": {"a": 1}, "b": 1, "c": 1, "d": 1}',
        '{"state": "IN_PROGRESS"}',
        '{"job_id": "x", "status": "pending", "created": 1, "owner": "a", "kind": "b"}',
        '{"status": "pending"}',
        '{"done": false, "name": "operations/1"}',
        mcp('{"status": "queued"}'),
        {"status": "processing"},
        "pending",
        '"pending"',
        "Queued.",
        "IN PROGRESS...",
        "in_progress",
        "Not ready",
        "0/3",
        "The review is still pending.",
        "Job 17 is running",
        "Job 42: RUNNING",
        "job 5 pending",
        "Deployment is in progress (40%)",
        "Status: scheduled",
        "state=starting",
        "Build #17: building",
        "0/3 pods ready",
        "0/3 nodes are available",
        "progress: 0/3",
        "NAME   READY   STATUS    AGE\nweb-0   0/1     Pending   5s",
        "<returncode>0</returncode>\n<output>\nJob 3 is queued\n</output>",
        '{"status": "not ready"}',
        '{"ready": "0/3"}',
        '{"job_status": "queued"}',
        '{"jobState": "Running"}',
        '{"phase": "Pending"}',
        '{"output": "Job 3 is waiting"}',
        "NAME   READY   STATUS              RESTARTS   AGE\nweb-0   0/1     ContainerCreating   0          5s",
        "NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nweb    0/3     3            0           9s",
        "NAMESPACE   NAME    READY   STATUS     RESTARTS   AGE\n"
        + "a           web-1   1/1     Running    0          5d\n" * 40
        + "a           web-2   0/1     Init:0/1   0          5s",
        "\n* main CI · 1234\nTriggered via push about 2 minutes ago\n\nJOBS\n* build (ID 5)",
        "build\tpending\t0\thttps://ci.example.com/runs/7",
        "compiling",
        "Status: waiting for approval",
        "The job is waiting for an available runner.",
        "0/3 replicas",
        "deployment web: 0 of 3 updated replicas",
        '{"status": "waiting for approval", "a": 1, "b": 2, "c": 3, "d": 4}',
        '{"state": "compiling"}',
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (apt-get)",
        "    Blocking waiting for file lock on package cache",
    ],
)
def test_a_result_that_says_that_work_goes_on_is_pending(content: Any) -> None:
    """By the words of harnesses, and by the state of a job."""
    assert known(content).pending


@pytest.mark.parametrize(
    "content",
    [
        "Process exited with code 0",
        '{"status": "completed"}',
        "Server running on port 80",
        "Server is running on port 80",
        "nginx is not running",
        "Building the project: done",
        "Processing complete",
        "No pending jobs",
        "0/3 tests passed",
        "10/30",
        "Your server is ready",
        "Job finished, was waiting for 3 s",
        "Order #W1 is pending and can be cancelled",
        "x" * 400 + " is pending",
        "a: 1\nb: 2\nstatus: pending\nc: 3\nd: 4",
        "NAME   READY   STATUS    RESTARTS   AGE\nweb-0   1/1     Running   0          5s",
        "NAME   READY   STATUS             RESTARTS   AGE\nweb-0   0/1     CrashLoopBackOff   7          9m",
        "NAME   READY   STATUS      RESTARTS   AGE\njob-0   0/1     Completed   0          9m",
        "\n✓ main CI · 1234\nTriggered via push about 2 minutes ago\n\nJOBS\n✓ build (ID 5)",
        "   Compiling serde v1.0.2\n    Finished dev profile",
        "Waiting for your input",
        '{"status": "awaiting_payment", "items": [1], "user": "y", "city": "x", "total": 3}',
        "0/3 checks failed",
        '{"engineState": "running", "fuel": 15.5}',
        '{"id": 1, "order_status": "pending", "items": [1], "user": "y", "city": "x"}',
        '{"order_id": "1", "status": "pending", "items": [1], "address": {"city": "x"}, "user": "y"}',
        '{"id": 1, "title": "x", "completed": false, "tags": ["a"], "owner": "y"}',
        "",
    ],
)
def test_other_results_are_not_pending(content: Any) -> None:
    """An order may be pending for ever, and a todo item not be done."""
    assert not known(content).pending


@pytest.mark.parametrize(
    "text",
    [
        "Error: 429 Too Many Requests",
        "Error: rate limit exceeded, retry in 20 s",
        '{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}',
        "Request failed with status code 503",
        "HTTP 502 Bad Gateway",
        mcp('{"error": {"message": "Failed to fetch: HTTP status 504"}}'),
        "Command timed out after 120 s",
        "Error: requests.exceptions.ReadTimeout: the host does not answer",
        "Error: subprocess.TimeoutExpired: Command 'make' did not end",
        "Error: connect ECONNREFUSED 127.0.0.1:5432",
        "Error: connection refused",
        "Error: context deadline exceeded",
        "Error: timeout",
        "timeout",
        "Timeout.",
        "Request timeout",
        '{"error": "timeout"}',
        "overloaded",
        "The server is overloaded.",
        "connection refused",
        "rate limit",
        "rate_limit",
        "curl: (7) Failed to connect to localhost port 80: Connection refused",
        "psql: connection to server failed: Connection refused",
        '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
        "sqlite3.OperationalError: database is locked",
        "Error: Could not get lock /var/lib/dpkg/lock. It is held by process 12",
        "Error: 409 Conflict: the object has been modified",
        "Request failed with status code 409",
        "Error: 422 Update is not a fast forward",
    ],
)
def test_an_error_that_waiting_mends_is_transient(text: str) -> None:
    """A limit, a server that is down, a time-out: calling again is no sign of a loop."""
    outcome = known(text)
    assert outcome.kind is OutcomeKind.ERROR
    assert outcome.transient


@pytest.mark.parametrize(
    ("content", "flag"),
    [
        ("Error: no such file", None),
        ("cat: /etc/shadow: Permission denied", None),
        ("Error: Unauthorized", None),
        ("Error: 403 Forbidden", None),
        ("Request failed with status code 401", None),
        ("Error: 500 Internal Server Error", None),
        ("Error: timeout must be a whole number", None),
        ("failed to create file: PUT https://api.example.com: 403 Resource not accessible", None),
        ("The user doesn't want to proceed with this tool use. The tool use was rejected.", None),
        ("The user rejected permission to use this specific tool call.", None),
        ("The user denied this operation.", None),
        ("Claude requested permissions to write to /a, but you haven't granted it yet.", None),
        ("Tool call was rejected by the user", None),
        ("Permission denied", None),
        ("Error: 401 Unauthorized", None),
        ('File "a.py", line 503 in main', True),
        ("HTTP 404 Not Found", None),
        ("Error: 429 widgets are missing", False),
        ("rate limit: 60 requests an hour", None),
        ("Error: invalid value for timeout", None),
        ("timeout: 30", None),
        ("Permission denied (timeout)", None),
        ("Error: 409 Conflict: a repository of this name already exists", None),
        ("Error: 422 Validation failed", None),
        ("Error: 409 rows are missing", False),
        ("The method is overloaded for strings.", None),
        ("curl: (22) The requested URL returned error: 404", None),
        ("fine", None),
    ],
)
def test_other_results_are_not_transient(content: Any, flag: bool | None) -> None:
    """The model's own mistakes, what is refused or denied however long one waits, and results about limits."""
    assert not known(content, flag).transient


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Error: file 'a.txt' not found", "Error: file 'b.txt' not found"),
        ('Error: relation "users" does not exist', 'Error: relation "orders" does not exist'),
        ("mkdir: cannot create directory ‘a’: File exists", "mkdir: cannot create directory ‘b c’: File exists"),
        ("cat: /src/a.py: No such file or directory", "cat: b.py: No such file or directory"),
        ("Error: page 12 of 40 is locked", "Error: page 7 of 9 is locked"),
        ('{"error": "no row with id 7", "id": 7}', '{"error": "no row with id 8", "id": 8}'),
        (mcp("Error: no table `a`"), mcp("Error: no table `b`")),
        ("错误: 'a'", "错误: 'b'"),
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\nnope", "Exit code: 2\nWall time: 3 seconds\nOutput:\nnope"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\nValueError: bad value: 1',
            'Traceback (most recent call last):\n  File "b.py", line 7, in g\n    g(1)\nValueError: bad value: 2'
            "\n\n(Command exited with code 1)",
        ),
    ],
)
def test_the_same_complaint_about_other_arguments_is_the_same_error(one: str, other: str) -> None:
    """Names, paths, quoted values, numbers, frames and traces do not count."""
    assert known(one, is_error=True).error == known(other, is_error=True).error != b""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Error: not found", "Error: not allowed"),
        ("ValueError: bad value", "TypeError: bad value"),
        ('{"error": "not found"}', '{"error": "not allowed"}'),
        (mcp("Error: not found"), mcp("Error: not allowed")),
    ],
)
def test_another_complaint_is_another_error(one: str, other: str) -> None:
    """The words decide."""
    assert known(one).error != known(other).error


@pytest.mark.parametrize("content", ["all good", "", [{"type": "image", "d": 1}]])
def test_a_success_has_no_error(content: Any) -> None:
    """Whatever came back."""
    assert known(content).error == b""


@pytest.mark.parametrize(
    ("content", "flag"),
    [
        ("", True),
        ("<returncode>1</returncode>\n<output>\n</output>", None),
        ("(Command exited with code 1)", None),
        ('{"exit_code": 2, "stdout": "", "stderr": ""}', None),
        ('{"success": false}', None),
        ([{"type": "image", "d": 1}], True),
    ],
)
def test_an_error_without_words_is_the_same_as_an_equal_one(content: Any, flag: bool | None) -> None:
    """It counts by its digest, in which no number stands."""
    assert known(content, flag).error == known(content, flag).digest
    assert known(content, flag).error != known("Exit code: 1\nsomething else", is_error=True).error


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such key",
        "ls: cannot access 'a': No such file or directory",
        "done\nExit code: 3",
        "429 Too Many Requests",
        "<returncode>2</returncode>",
        "No results found",
        "Still running",
        "unknown tool: search",
    ],
)
def test_colours_hide_nothing(text: str) -> None:
    """What a result says of itself is read without the escape sequences of terminals, wherever they stand."""
    plain, coloured = known(text), known("\x1b[1;31m" + "\x1b[0m".join(text) + "\x1b]0;title\x07")
    assert (plain.digest, plain.kind, plain.error) == (coloured.digest, coloured.kind, coloured.error)
    assert (plain.pending, plain.transient, plain.unknown_tool) == (
        coloured.pending,
        coloured.transient,
        coloured.unknown_tool,
    )


SSH = "Permission denied (publickey)."


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"bob@a: {SSH}", f"git@example.com: {SSH}\nfatal: Could not read from remote repository."),
        (f"Warning: Permanently added 'a' to the list of known hosts.\nbob@a: {SSH}", f"bob@b: {SSH}"),
        ("Error: 401 Unauthorized", '{"status": 401, "message": "no such user: bob"}'),
        ("Request failed with status code 401", "Error: Incorrect API key provided: sk-ab***yz"),
        ("HTTP 403: repository x is not accessible", '{"error": {"code": 403, "message": "Forbidden for bob"}}'),
    ],
)
def test_to_be_refused_is_the_same_error(one: str, other: str) -> None:
    """By a key, as somebody unknown, as somebody who may not: whatever was asked for. Waiting mends none."""
    assert known(one).kind is known(other).kind is OutcomeKind.ERROR
    assert known(one).error == known(other).error != b""
    assert not known(one).transient
    assert not known(other).transient
    assert known(one).error != known("Error: not found").error


def test_refusals_of_different_kinds_are_different_errors() -> None:
    """And words about them in longer results are none."""
    errors = [f"bob@a: {SSH}", "Error: 401 Unauthorized", "Error: 403 Forbidden", "cat: /etc/shadow: Permission denied"]
    assert len({known(text).error for text in errors}) == len(errors)
    assert known("12 requests, of which 401 failed", is_error=True).error != known(errors[1]).error


@pytest.mark.parametrize(
    "text",
    [
        "Command timed out after 30 s",
        "EXECUTION TIMED OUT",
        "Error: subprocess.TimeoutExpired: Command 'make' did not end",
        "The last command <command>make</command> timed out and has been killed.\nThe output was:\n<output>\n</output>",
    ],
)
def test_a_command_that_takes_too_long_fails_alike(text: str) -> None:
    """It may be waited for, yet it is an error that comes again."""
    assert known(text).kind is OutcomeKind.ERROR
    assert known(text).transient
    assert known(text).error == known(text.replace("30", "60")).error != b""


@pytest.mark.parametrize(
    "text", ["Error: 429 Too Many Requests", "Request timeout", "503 Service Unavailable", "timeout"]
)
def test_what_another_call_may_not_meet_is_no_evidence(text: str) -> None:
    """A limit, a network, a server that is down."""
    assert known(text).transient
    assert known(text).error == b""


def test_the_text_is_short() -> None:
    """The beginning of the result is kept to be shown, own texts left out."""
    outcome = known([{"type": "image", "d": 1}, {"type": "text", "text": "x" * 1000}])
    assert outcome.text == "x" * SHORT_TEXT


def test_an_unknown_outcome_is_equal_to_all() -> None:
    """Otherwise the digests decide."""
    one, other = outcome_of("a"), outcome_of("b")
    assert same_outcome(None, one)
    assert same_outcome(one, None)
    assert same_outcome(None, None)
    assert same_outcome(one, one)
    assert not same_outcome(one, other)


numbers = st.integers(0, 10**30).map(str)
durations = st.builds(
    "{}{}{}".format, st.integers(0, 99999) | st.floats(0, 999).map("{:.3f}".format), st.sampled_from(["", " "]),
    st.sampled_from(["ns", "µs", "ms", "s", "sec", "seconds", "m", "min", "minutes", "h", "hours", "days"]),
)  # fmt: skip
times = st.datetimes().map(lambda time: time.isoformat() + "Z")
hashes = st.text("0123456789abcdef", min_size=7, max_size=64).filter(lambda text: not text.isalpha())
uuids = st.uuids().map(str).filter(lambda text: not text[:8].isalpha())
volatile = [durations, times, st.datetimes().map(str), uuids]
in_errors = [*volatile, numbers, hashes, hashes.map(str.upper)]
in_results = [
    durations.filter(lambda text: not text.endswith(" m")),
    *volatile[1:],
    hashes.filter(lambda text: not text.isdigit()),
]
pairs, plain_pairs = (
    st.sampled_from(kinds).flatmap(lambda kind: st.tuples(kind, kind)) for kinds in (in_errors, in_results)
)
words = st.sampled_from(["found", "in", "the", "file", "été", "Ψ", "x", "deadbeef", "a/b.py", "{", '"']).map(
    lambda word: (word, word)
)
gaps = st.sampled_from([" ", "\n", ": ", ", ", " = ", "_", "(", "\t"]).map(lambda gap: (gap, gap))


Pieces = list[tuple[tuple[str, str], tuple[str, str]]]


@more_examples(5)
@given(pieces=st.lists(st.tuples(words | pairs, gaps), min_size=1, max_size=20), wrapped=st.booleans())
def test_two_errors_that_differ_in_what_is_volatile_are_equal(pieces: Pieces, wrapped: bool) -> None:
    """Whatever the numbers, durations, times and ids, and wherever they stand; one more word makes another result."""
    one, other = ("".join(piece[side] for pair in pieces for piece in pair) for side in (0, 1))
    if wrapped:
        assert known({"said": one}, is_error=True).digest == known({"said": other}, is_error=True).digest
    else:
        assert normalise(one) == normalise(other)
    assert normalise(one + "!") != normalise(other)


@more_examples(5)
@given(pieces=st.lists(st.tuples(words | plain_pairs, gaps), min_size=1, max_size=20), wrapped=st.booleans())
def test_two_results_that_differ_in_what_is_volatile_are_equal(pieces: Pieces, wrapped: bool) -> None:
    """Whatever the durations, times and ids, and wherever they stand; one more number makes another result."""
    one, other = ("".join(piece[side] for pair in pieces for piece in pair) for side in (0, 1))
    if wrapped:
        assert same({"said": one, "more": PADDING}, {"said": other, "more": PADDING})
    else:
        assert normalise(one, keep_numbers=True) == normalise(other, keep_numbers=True)
    assert normalise(f"{one} | 17", keep_numbers=True) != normalise(f"{other} | 18", keep_numbers=True)


contents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "type", "error", "content", "status", "document", "exit_code"]), inner, max_size=4
        )
    ),
)


@more_examples(5)
@given(content=contents, flag=st.none() | st.booleans())
def test_any_content_has_an_outcome(content: Any, flag: bool | None) -> None:
    """Nothing that a client can send makes it raise, and the same content is always the same outcome."""
    assert outcome_of(content, flag) == outcome_of(content, flag)
    assert outcome_of(json.dumps(content), flag) == outcome_of(json.dumps(content), flag)


@more_examples(5)
@given(text=st.text(st.sampled_from("01 9aAfgxz-.:_s\x1b[]\\\n\ud800é")))
def test_no_text_grows(text: str) -> None:
    """What is digested is never longer than the text."""
    for keep_numbers in (False, True):
        assert len(normalise(text, keep_numbers=keep_numbers)) <= len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("depth", [300, 900, 2000])
def test_nothing_is_nested_too_deep(depth: int) -> None:
    """Deep values have outcomes, and differ where the values do."""
    deep: Any = "leaf"
    other: Any = "other leaf"
    for _ in range(depth):
        deep, other = {"content": deep}, {"content": other}
    assert same(deep, deep)
    assert not same(deep, other)
    assert not same("[" * depth + "]" * depth, "[" * depth + "1" + "]" * depth)


PLAIN = ["0", "1", "23", "a", "F", "s", ".", ",", ":", "-", "/", '"', "[", "]", "m", "min", "0x", "3s", "deadbeef1"]
OTHER = ["\u00b5s", "\u03bc", "\\", "\\n", "\\t", "\\u001b", "\\u0007", "\x1b", "\x1b[1;3", "\x1b]0;", "\x07"]
DATES = [
    "2026-11-23",
    "T10:00:05.1",
    "Nov 23",
    "10:00:05",
    "23/11/",
    "2026",
    '"pid": ',
    "elapsed=",
    "Request ID:",
    "pid ",
]
VOLATILE = [*PLAIN, *DATES, *OTHER, " ", "\r", "3 h 2 m", "Chunk ID: ", UUID, UUID[:13], UUID[13:]]
lines = st.lists(st.sampled_from(VOLATILE), max_size=12).map("".join)


@more_examples(10)
@given(st.lists(lines, max_size=30).map("\n".join), st.booleans())
def test_a_text_in_pieces_is_the_text(text: str, keep_numbers: bool) -> None:
    """However it is cut at the ends of its lines."""
    whole = normalise(text, keep_numbers=keep_numbers)
    for size in (1, 64, 200):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(normalising, "_PIECE", max(size, *map(len, text.encode().split(b"\n"))) + 1)
            assert normalise(text, keep_numbers=keep_numbers) == whole


LONG = ["a1 b2\n", "a1 b2 ", '"a1b2"', "a1b2", "1", "\x1b", "\x1b]0;a1 ", '"' + "a1" * 90 + "\n" + "b2" * 90]


@pytest.mark.parametrize("reader", ["_without_numbers", "_without_moving"])
@pytest.mark.parametrize("text", LONG)
def test_no_expression_reads_more_than_a_piece(text: str, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other threads wait for none of them; a text of twice the length has twice as many pieces."""
    looked: list[bytes] = []
    read = getattr(normalising, reader)
    monkeypatch.setattr(normalising, "_PIECE", 100)

    def counted(piece: bytes) -> bytes:
        looked.append(piece)
        return bytes(read(piece))

    monkeypatch.setattr(normalising, reader, counted)
    for times in (1000, 2000):
        looked.clear()
        normalise(text * times, keep_numbers=reader == "_without_moving")
        assert "".join(piece.decode() for piece in looked) == text * times
        assert max(map(len, looked)) <= 100
        assert len(looked) <= 4 * len(text) * times / 100


def test_json_that_is_too_much_is_read_as_a_text() -> None:
    """What it says of itself is looked for at its ends only; every part of it still tells it from others."""
    few, many = ([1] * size for size in (9, MOST_INSIDE + 1))
    assert known(json.dumps({"data": few, "status": "failed"})).kind is OutcomeKind.ERROR
    assert known(json.dumps({"data": many, "status": "failed"})).kind is OutcomeKind.OK
    assert not same(json.dumps({"data": many, "more": "x"}), json.dumps({"data": many, "more": "y"}))
    assert not same(json.dumps([*many, "x", *many]), json.dumps([*many, "y", *many]))
