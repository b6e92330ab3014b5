"""What a call does, by its words."""

import json
from typing import Any

import pytest

from callfuse.detect.effects import LONG, Effect, effect_of
from callfuse.model import ToolCall
from callfuse.policy.settings import LoopSettings


def effect(tool: str, arguments: Any = "{}", **settings: object) -> str:
    """What a call of this tool does."""
    return effect_of(ToolCall("", tool, arguments), LoopSettings.model_validate(settings)).value


def of_command(text: str, tool: str = "bash") -> str:
    """What a shell command does."""
    return effect(tool, json.dumps({"command": text}))


@pytest.mark.parametrize(
    ("does", "tools"),
    [
        ("reads", "read_file Read getUser list-issues mcp__files__search_files LS grep view web_fetch TodoRead"),
        ("changes", "write_file Edit createIssue apply_patch str_replace_editor mcp__read__delete_row send_message"),
        ("changes", "get_or_create find_and_replace"),
        ("unclear", "patcher fix_it a playwright x" + "y" * 300),
    ],
)
def test_names(does: str, tools: str) -> None:
    """Whatever way they are written in, behind the name of a server; what may change anything changes."""
    assert {tool: effect(tool) for tool in tools.split()} == dict.fromkeys(tools.split(), does)


@pytest.mark.parametrize(
    "command",
    [
        "ls -la",
        "cd /repo && grep -rn 'a > b; rm x' src | head -20",
        "cat a.py 2>/dev/null || echo none",
        "sed -n 1,80p a.py",
        "git -C /repo diff --stat",
        "find . -name '*.py' 2>&1 | wc -l",
        "PAGER=cat timeout 30s git log",
        "for f in *.py; do head -5 $f; done",
        'cat "$(find . -name a.py)"',
        "!ls data\n# what is there\npwd",
    ],
)
def test_commands_that_read(command: str) -> None:
    """However many in a line; what is quoted, thrown away or only a remark is none."""
    assert of_command(command) == "reads"
    assert effect("shell", {"command": ["bash", "-lc", command]}) == "reads"


@pytest.mark.parametrize(
    "command",
    [
        "echo x > a.py",
        "cat <<EOF\nx\nEOF",
        "sed -i s/a/b/ a.py",
        "grep x a.py && rm a.py",
        "git commit -am x",
        "find . -name '*.pyc' -delete",
        'echo "$(touch a)"',
        "sudo mv a b",
        "ls; pip install x",
        "x" * (LONG + 1),
    ],
)
def test_commands_that_change_something(command: str) -> None:
    """One of them is enough; so is a length that nobody reads."""
    assert of_command(command) == "changes"


@pytest.mark.parametrize(
    "command", ["pytest -q", "python a.py | tail -3", "ls && ./run.sh", "cd /repo", "", "'unclosed"]
)
def test_commands_that_nobody_can_tell(command: str) -> None:
    """Programs, and nothing at all."""
    assert of_command(command) == "unclear"


@pytest.mark.parametrize(
    ("does", "statement"),
    [
        ("reads", "SELECT updated_at FROM t"),
        ("reads", "(WITH x AS (SELECT 1) SELECT * FROM x)"),
        ("changes", "INSERT INTO t VALUES (1)"),
        ("changes", "SELECT 1; DROP TABLE t"),
        ("unclear", "VACUUM"),
        ("unclear", ""),
    ],
)
def test_statements(does: str, statement: str) -> None:
    """In a tool for SQL, or in one that queries."""
    assert effect("execute_sql", json.dumps({"query": statement})) == does
    assert (effect("query", {"sql": statement}) == "changes") is (does == "changes")


def test_tools_of_several_actions() -> None:
    """By the argument that names the action; the name of a tool that reads says enough."""
    assert effect("text_editor_edit", '{"command": "view", "path": "a"}') == "reads"
    assert effect("text_editor_edit", '{"command": "create", "path": "a"}') == "changes"
    assert effect("execute_action", {"action_name": "get_issue"}) == "reads"
    assert effect("process", {"action": "list"}) == "reads"
    assert effect("read", {"action": "delete"}) == "reads"
    assert effect("process", ["list"]) == "unclear"


def test_what_is_declared_counts() -> None:
    """Whatever the words say."""
    assert effect("read", state_changing=["read"]) == "changes"


def test_arguments_of_any_kind() -> None:
    """A raw text is the command; where nobody knows any more what was run, it may have been anything."""
    assert effect("bash", "ls -la") == "reads"
    assert effect("bash", json.dumps({"command": 7})) == "unclear"
    gone = ToolCall("", "bash", "", signature=b"x", has_arguments=False)
    assert effect_of(gone, LoopSettings()) is Effect.CHANGES
