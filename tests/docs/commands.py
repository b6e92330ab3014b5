"""Command lines of pages: split as a shell does, and what is wrong with one, without running it."""

import inspect
import io
import re
import runpy
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import typer.main
from packaging.requirements import InvalidRequirement, Requirement

from callfuse.cli.app import app as command_line
from tests.project.sources import document
from tests.project.test_building import METADATA, targets

_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OPERATORS = {"|", "||", "&&", ";", "&", "(", ")"}
_REDIRECTIONS = {">", ">>", "<"}
INSTALLERS = ("pip", "pipx", "uv", "uvx")


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `line`: as it is typed, without the comment; `variables`: those set in front of it; `words`: its
    program and arguments; `is_plain`: whether there is nothing else in its line, such as a pipe."""

    line: str
    variables: dict[str, str]
    words: tuple[str, ...]
    is_plain: bool = True

    @property
    def name(self) -> str:
        """The name of its program, wherever that is; '' where only variables are set."""
        return self.words[0].rpartition("/")[2] if self.words else ""


def commands_in(text: str) -> list[Command]:
    """Every command of a block, in order; of a pipe each part. ValueError where quotes do not match."""
    return [command for line in lines_in(text) for command in _split(line)]


def lines_in(text: str) -> Iterator[str]:
    """The lines of a block, continued ones as one, without comments and empty ones."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield _without_comment(line)


def _without_comment(line: str) -> str:
    """A `#` that begins a word outside of quotes begins a comment."""
    quote = ""
    for at, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at].strip()
    return line.strip()


def _split(line: str) -> list[Command]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    is_plain = True
    for word in lexer:
        if word in _REDIRECTIONS:
            next(lexer)  # the file
        elif word in _OPERATORS:
            parts.append([])
        else:
            parts[-1].append(word)
            continue
        is_plain = False
    found = []
    for words in parts:
        variables: dict[str, str] = {}
        while words and (given := _VARIABLE.fullmatch(words[0])):
            variables[given[1]] = given[2]
            words.pop(0)
        if words or variables:
            found.append(Command(line, variables, tuple(words), is_plain))
    return found


def wrong_in(command: Command) -> str:
    """What is wrong with a command: an unknown target, subcommand, option, extra or module; nothing if it could run."""
    match command.words:
        case ["make", *names]:
            known = targets(document("Makefile"))
            wrong = [name for name in names if name not in known and not _VARIABLE.fullmatch(name)]
        case ["callfuse", *arguments] | ["python" | "python3", "-m", "callfuse", *arguments]:
            wrong = _wrong_arguments(arguments)
        case ["python" | "python3", "-m", "venv", _]:
            wrong = []
        case ["python" | "python3", "-m", "pip", *arguments]:
            wrong = _wrong_packages("pip", arguments)
        case ["python" | "python3", "-m", module, *options]:
            wrong = _wrong_options(module, options)
        case ["vllm", *arguments] if "--middleware" in arguments:
            path = arguments[arguments.index("--middleware") + 1]
            module, _, name = path.rpartition(".")
            wrong = [] if inspect.isclass(getattr(import_module(module), name, None)) else [path]
        case [program, *arguments] if program in INSTALLERS:
            wrong = _wrong_packages(program, arguments)
        case _:
            wrong = [command.line]
    return " ".join(wrong)


def _wrong_arguments(arguments: Sequence[str]) -> list[str]:
    """Subcommands and options that the command line does not know; behind `--` there is another program."""
    known: Any = typer.main.get_command(command_line)
    own = list(arguments)[: list(arguments).index("--")] if "--" in arguments else arguments
    for name in own:
        if not hasattr(known, "commands"):
            break
        if name[0] != "-":
            if name not in known.commands:
                return [name]
            known = known.commands[name]
    options = {option for param in known.params for option in (*param.opts, *param.secondary_opts)}
    return [name for name in own if name[0] == "-" and name != "-" and name not in {"-h", "--help", *options}]


def _wrong_options(module: str, options: Sequence[str]) -> list[str]:
    """The module if it is no program of the project, or the options that its help does not name."""
    spec = find_spec(module) if module.partition(".")[0] in ("benchmarks", "tests") else None
    if spec is None or spec.origin is None:
        return [module]
    program = f"{module}.__main__" if spec.submodule_search_locations else module
    if not program.endswith("__main__") and '__name__ == "__main__"' not in _source(program):
        return [module]
    shown = _help(program)
    return [option for option in options if option.startswith("-") and option.partition("=")[0] not in shown]


def _source(module: str) -> str:
    return document(f"{module.replace('.', '/')}.py")


@cache
def _help(module: str) -> str:
    """What a program prints for `--help`; nothing for one that takes no options."""
    if "argparse" not in _source(module):
        return ""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, "argv", [module, "--help"])
        patch.delitem(sys.modules, module, raising=False)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__")
    assert not ended.value.code
    return printed.getvalue()


def _wrong_packages(program: str, arguments: Sequence[str]) -> list[str]:
    """Extras of callfuse that are not there, and what is no name of a package."""
    words = [word for word in arguments if not word.startswith("-")]
    if program in ("uvx", "pipx") and "--from" not in arguments and "--spec" not in arguments:
        words = words[:2]  # a package, and behind it the arguments of its program
    wrong = []
    for word in words:
        requirement = word.replace(".[", "callfuse[", 1) if word.startswith(".[") else word
        try:
            asked = Requirement(requirement)
        except InvalidRequirement:
            if not re.match(r"[./]|\w+\+", word) and "://" not in word and not word.endswith((".whl", ".txt")):
                wrong.append(word)
            continue
        if asked.name == "callfuse":
            wrong += sorted(asked.extras - set(METADATA["project"]["optional-dependencies"]))
    return wrong
