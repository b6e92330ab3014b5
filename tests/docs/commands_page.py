"""Writes `docs/commands.md` from the command line itself: python -m tests.docs.commands_page."""

from collections.abc import Iterator
from typing import Any

import typer.main

from callfuse.cli.app import app
from tests.project.sources import PROJECT

PAGE = PROJECT / "docs/commands.md"
WIDTH = 120
HEAD = """\
# Commands

Every command of `callfuse` with its options, as its `--help` prints them. This page is written from the
program by `python -m tests.docs.commands_page`. Most commands need `callfuse[serve]` ([install](install.md)). The
[tasks](tasks/why-blocked.md) show them in use.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *_sections(typer.main.get_command(app), "callfuse")]).rstrip() + "\n"


def _sections(command: Any, name: str) -> Iterator[str]:
    """A section for each command that does something, in the order of the help."""
    for below, one in getattr(command, "commands", {}).items():
        yield from _sections(one, f"{name} {below}")
    if not hasattr(command, "commands"):
        yield from _section(command, name)


def _section(command: Any, name: str) -> Iterator[str]:
    arguments = [_metavar(param) for param in command.params if param.param_type_name == "argument"]
    usage = " ".join([name, "[OPTIONS]", *arguments])
    yield f"## `{name}`\n"
    yield f"`{usage}`\n"
    for paragraph in command.help.split("\n\n"):
        yield from _wrapped(paragraph)
        yield ""
    rows = [_row(param) for param in command.params if param.param_type_name == "option" and not param.hidden]
    if rows:
        yield "| option | value | what it does |"
        yield "|---|---|---|"
        yield from rows
        yield ""


def _metavar(param: Any) -> str:
    """An argument as the help has it: in brackets if it may be left out, with dots if there may be several."""
    name = param.metavar.removesuffix("...") + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _wrapped(paragraph: str) -> Iterator[str]:
    line = ""
    for word in paragraph.split():
        if len(line) + 1 + len(word) > WIDTH:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line


def _row(param: Any) -> str:
    names = ", ".join(f"`{one}`" for one in (*param.opts, *param.secondary_opts))
    value = "none" if param.is_flag else f"`{param.metavar}`"
    return f"| {names} | {value.replace('|', '` or `')} | {param.help} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
