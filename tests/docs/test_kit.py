"""The kit misses nothing: no block, no command that is not there, no output that a page has made up."""

from pathlib import Path

import pytest

from callfuse import __version__
from callfuse.errors import ConfigError
from tests.docs import given
from tests.docs.blocks import Block, blocks_in, every_block, faults, is_block
from tests.docs.checks import CHECKS
from tests.docs.commands import Command, commands_in, lines_in, wrong_in
from tests.docs.data import run_dockerfile, run_ini, run_yaml
from tests.docs.kinds import runner_of
from tests.docs.outputs import PRINTED, missing_lines
from tests.docs.shell import run as run_shell
from tests.docs.snippets import missing, wrong_names
from tests.docs.world import World
from tests.project.sources import PROJECT, document

NOWHERE = World("http://nowhere", "http://nowhere", "memory://")
PAGE = """
```python
one = 1
```

- in a list:

  ~~~yaml hl_lines="1"
  two: {}
  ~~~

=== "in a tab"

    ``` sh
    make test
    ```
"""


def block(language: str, text: str, page: str = "docs/new.md") -> Block:
    """A block of a page that nobody knows."""
    return Block(page, 1, language, text)


def test_blocks_are_found_wherever_they_stand() -> None:
    """With their lines and languages, and not indented."""
    found = blocks_in(PAGE)
    assert [(one.line, one.language, one.text) for one in found] == [
        (2, "python", "one = 1\n"),
        (8, "yaml", "two: {}\n"),
        (14, "sh", "make test\n"),
    ]
    assert faults(PAGE) == []


def test_no_fence_is_missed() -> None:
    """As many as there are lines that look like one."""
    for page in {one.page for one in every_block()}:
        marks = [line for line in document(page).splitlines() if line.strip().startswith(("```", "~~~"))]
        assert len(marks) == 2 * sum(one.page == page for one in every_block())


def test_a_block_that_nobody_could_run_is_told() -> None:
    """A fence without a language, one that is not closed, and a block that is only indented."""
    assert faults("```\nx\n```\n") == ["line 1: the fence names no language"]
    assert faults("Type:\n\n    callfuse serve\n") == ["line 3: an indented block; use a fence that names its language"]
    assert faults("- one\n\n    more of it\n\n```sh\n\n    x\n```\n") == []
    with pytest.raises(ValueError, match="not closed"):
        blocks_in("```sh\nmake test\n")


@pytest.mark.parametrize("language", ["text", "rust", "", "jsonc"])
def test_a_block_that_nobody_runs_is_told(language: str) -> None:
    """Output that nothing prints, and languages without a runner."""
    with pytest.raises(LookupError, match=r"docs/new\.md:1: nobody runs this"):
        runner_of(block(language, "something\n"))


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (given.ELSEWHERE, "ELSEWHERE"),
        (given.EXCEPTIONS, "EXCEPTIONS"),
        (given.SAVED, "SAVED"),
        (PRINTED, "PRINTED"),
        (CHECKS, "CHECKS"),
    ],
)
def test_every_entry_is_of_a_block(table: dict[tuple[str, str], object], name: str) -> None:
    """An entry of a block that is gone goes, too."""
    for page, start in table:
        found = [one for one in every_block() if is_block(one, page, start)]
        assert found, (name, page, start)
        assert len(found) == 1 or name == "PRINTED", (name, page, start)


def test_exceptions_are_few_and_say_why() -> None:
    """Nobody runs these."""
    assert all(given.EXCEPTIONS.values())
    assert len(given.EXCEPTIONS) <= len(every_block()) // 20


def test_what_runs_elsewhere_names_a_test() -> None:
    """By its file and its name."""
    for test in (*given.ELSEWHERE.values(), *given.WHOLE_PAGES.values()):
        path, _, name = test.partition("::")
        assert f"def {name}(" in (PROJECT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    [
        "make lunch",
        "callfuse watch",
        "callfuse --install-everything",
        "callfuse -x",
        "callfuse serve --upstreams URL",
        "callfuse config explain --tools search",
        "callfuse run --upstreams x -- claude --continue",
        "python -m callfuse nothing",
        "python -m benchmarks.nothing",
        "python -m benchmarks.chunks --cunks 3",
        "python -m benchmarks.driving",
        "pip install 'callfuse[everything]'",
        "pip install --upgrade '.[everything]'",
        "uvx --from 'callfuse[serv]' callfuse serve",
        "python -m pip install 'callfuse[serv]'",
        "vllm serve MODEL --middleware callfuse.Fuse",
        "npm start",
    ],
)
def test_a_command_that_is_not_there_is_told(line: str) -> None:
    """Unknown targets, subcommands, options, programs, extras."""
    [command] = commands_in(line)
    assert wrong_in(command) != ""


@pytest.mark.parametrize(
    "line",
    [
        "make test ARGS=-x",
        "callfuse run --upstream x -- claude --continue",
        "python -m benchmarks.chunks --rounds 3",
        "pip install -e '.[serve,redis]' 'litellm[proxy]>=1'",
        "python3 -m venv .venv",
        "python -m pip install --upgrade 'callfuse[serve]'",
        "uv tool install 'callfuse[serve]'",
        "pipx install 'callfuse[serve]'",
        "uvx callfuse --version",
        "vllm serve MODEL --middleware callfuse.CallFuseMiddleware",
    ],
)
def test_a_command_that_is_there_is_not(line: str) -> None:
    """Whatever stands in front of it and behind."""
    [command] = commands_in(line)
    assert wrong_in(command) == ""


def test_lines_are_read_as_a_shell_reads_them() -> None:
    """Comments, continued lines, variables, pipes, quotes."""
    text = "# one\nA=1 B='x y' callfuse top \\\n  --once  # two\n\nzcat 'a#b' | callfuse replay - # three\n"
    assert list(lines_in(text)) == ["A=1 B='x y' callfuse top    --once", "zcat 'a#b' | callfuse replay -"]
    first, second, third = commands_in(text)
    assert (first.variables, first.words, first.is_plain) == (
        {"A": "1", "B": "x y"},
        ("callfuse", "top", "--once"),
        True,
    )
    assert (second.words, third.words, third.is_plain) == (("zcat", "a#b"), ("callfuse", "replay", "-"), False)


def test_a_program_that_nobody_knows_is_told(tmp_path: Path) -> None:
    """It is not passed over."""
    with pytest.raises(AssertionError, match="nobody runs terraform: add it"):
        run_shell(block("sh", "make test\nterraform apply\n"), NOWHERE, tmp_path)
    with pytest.raises(AssertionError, match="nobody runs granian app:app"):
        run_shell(block("sh", "granian app:app\n"), NOWHERE, tmp_path)


def test_what_is_for_a_machine_only_is_read(tmp_path: Path) -> None:
    """Nothing of such a block runs; files of the project and extras that it names are there."""
    text = "docker build -t callfuse .\n/opt/bin/pip install 'callfuse[serve]'\ntouch outside > /etc/nothing\n"
    run_shell(block("sh", text.replace("touch", "echo")), NOWHERE, tmp_path)
    for line in ("/opt/bin/pip install 'callfuse[sieve]'", "kubectl apply -f deploy/nothing.yaml"):
        with pytest.raises(AssertionError):
            run_shell(block("sh", f"docker run callfuse\n{line}\n"), NOWHERE, tmp_path)
    with pytest.raises(AssertionError):
        run_shell(block("sh", "echo outside > /etc/nothing\n"), NOWHERE, tmp_path)


def test_names_that_are_not_there_are_told() -> None:
    """Of callfuse, and of packages that are not installed."""
    assert wrong_names("from callfuse import CallFuseMiddleware, Fuse") == ["callfuse.Fuse"]
    assert wrong_names("from callfuse.integrations.langchain import LoopGuard, Guard") == [
        "callfuse.integrations.langchain.Guard"
    ]
    assert wrong_names("import callfuse.nothing\nfrom callfuse.none import x") == [
        "callfuse.nothing",
        "callfuse.none.x",
    ]
    assert missing("import json, nothing_of_this\nfrom starlette.none import x") == [
        "nothing_of_this",
        "starlette.none",
    ]


@pytest.mark.parametrize("text", ["tool_call_lop: {mode: warn}", "tool_call_loop: {mod: warn}", "tool_call_loop: {}"])
def test_settings_that_are_wrong_are_told(text: str, tmp_path: Path) -> None:
    """Unknown keys, at the top or below, and what sets nothing."""
    with pytest.raises((AssertionError, ConfigError)):
        run_yaml(block("yaml", text), NOWHERE, tmp_path)


def test_files_for_other_programs_are_read(tmp_path: Path) -> None:
    """A unit whose command has an option that is not there, and a recipe that copies what is not there."""
    run_ini(block("ini", "[Service]\nExecStart=/opt/venv/bin/callfuse serve --port 1\n"), NOWHERE, tmp_path)
    with pytest.raises(AssertionError):
        run_ini(block("ini", "[Service]\nExecStart=/opt/venv/bin/callfuse serve --ports 1\n"), NOWHERE, tmp_path)
    run_dockerfile(block("dockerfile", "FROM python\nCOPY src pyproject.toml ./\n"), NOWHERE, tmp_path)
    with pytest.raises(AssertionError):
        run_dockerfile(block("dockerfile", "FROM python\nCOPY sources ./\n"), NOWHERE, tmp_path)


def test_what_is_not_printed_is_told() -> None:
    """In any order but that of the page; times, ports and ids are equal; three dots are anything."""
    printed = "on http://127.0.0.1:1234\nfound 3 in 12 ms\nid 0123456789abcdef0\nthe end, and more\n"
    assert (
        missing_lines("on http://127.0.0.1:99\n...\nfound 3 in 7 ms\n\nid fedcba98765432100\nthe end...", printed) == []
    )
    assert missing_lines("found 4 in 12 ms", printed) == ["found 4 in 12 ms"]
    assert missing_lines("found 3 in 12 ms\non http://127.0.0.1:1", printed) == ["on http://127.0.0.1:1"]


def test_commands_are_values() -> None:
    """The program is the first word; a line of variables alone has none."""
    assert Command("A=1", {"A": "1"}, ()).name == ""


def test_an_installation_is_followed_by_what_it_installs(tmp_path: Path) -> None:
    """The steps of an installation are read, and the commands behind them run."""
    text = "python -m venv .venv\n. .venv/bin/activate\npip install 'callfuse[serve]'\ncallfuse --version\n"
    assert run_shell(block("sh", text), NOWHERE, tmp_path) == f"callfuse {__version__}\n"
    assert run_shell(block("sh", "uvx --from 'callfuse[serve]' callfuse --version\n"), NOWHERE, tmp_path)
    with pytest.raises(AssertionError):
        run_shell(block("sh", "uvx callfuse --versions\n"), NOWHERE, tmp_path)
