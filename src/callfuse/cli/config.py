"""`callfuse config`: check a file, write a new one, print the schema, explain the settings in effect.

Results go to standard output, problems to standard error. The exit code is 0, or 2 if there are problems.
"""

import json as json_text
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from callfuse.cli.help import Group, SwitchCommand
from callfuse.errors import ConfigError

if TYPE_CHECKING:
    from callfuse.config import Resolved
    from callfuse.reference.effective import EffectiveSetting

WIDTH = 100
"""The width of a table."""
INDENT = "    "
VALUE_WIDTH = 18
"""The width of the column of values, enough for most."""

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Check a settings file, create one, or show the settings in effect."
)


@app.command(cls=SwitchCommand)
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE", hidden=True)],
) -> None:
    """List what a file sets, or everything that is wrong with it.

    FILE is YAML, or TOML with the suffix .toml; several files are checked one by one. Environment variables are
    ignored. The exit code is 0 if every file is valid, 2 if not.
    """
    from callfuse.config import resolve
    from callfuse.config.model import dotted_name
    from callfuse.reference.effective import as_text, value_at

    wrong = []
    for file in files:
        try:
            resolved = resolve(file, {})
        except ConfigError as error:
            wrong.append(str(error))
            continue
        for path, source in resolved.sources.items():
            typer.echo(f"{dotted_name(path)} = {as_text(value_at(resolved.config, path))} ({source})")
        keys = len(resolved.sources)
        typer.echo(f"{file} is valid: it sets {keys} key{'' if keys == 1 else 's'}")
    if wrong:
        raise _wrong("\n".join(wrong))


@app.command(cls=SwitchCommand)
def init(
    file: Annotated[str | None, typer.Argument(metavar="FILE", hidden=True)] = None,
) -> None:
    """Write a file with every key, its default, its environment variable and its description, all commented out.

    FILE is a new file, TOML with the suffix .toml and YAML otherwise. Without FILE, or with -, print to stdout.
    """
    from callfuse.reference.template import template

    text = template(toml=file is not None and file.lower().endswith(".toml"))
    if file in (None, "-"):
        typer.echo(text, nl=False)
        return
    try:
        with Path(file).open("x", encoding="utf-8") as new:
            new.write(text)
    except OSError as error:
        raise _wrong(f"cannot write {file}: {error.strerror}; use the name of a new file") from None


@app.command(cls=SwitchCommand)
def schema() -> None:
    """Print the JSON schema of the file. Editors use it to complete and check settings."""
    from callfuse.reference.schema import json_schema

    typer.echo(json_text.dumps(json_schema(), indent=2))


@app.command(cls=SwitchCommand)
def explain(
    model: Annotated[
        str, typer.Option(metavar="BACKEND:MODEL", help="A model, such as openai:gpt-4o; default: any.")
    ] = "",
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="A tool; default: any.")] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A settings file, YAML or TOML; default: the file in CALLFUSE_CONFIG, if set."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list of key, value, tier and source.")] = False,
) -> None:
    """Print every setting in effect for a model and a tool, with the tier and the source that it comes from.

    The first of these that sets a key wins: per_tool, models, the environment, the file, the defaults.
    """
    from callfuse.config import model_problem
    from callfuse.reference.effective import as_json, effective_rows

    resolved = _resolve_or_exit(config)
    if model and (wrong := model_problem(model, resolved.config)):
        raise _wrong(f"--model {model!r}: {wrong}")
    rows = list(effective_rows(resolved, model, tool))
    if json:
        typer.echo(as_json(rows))
    else:
        typer.echo("\n".join(_table(rows)))


def _table(rows: Sequence["EffectiveSetting"]) -> Iterator[str]:
    """Format the settings, one on each line. A long value continues on indented lines."""
    wide = max(len(row.key) for row in rows)
    for row in rows:
        first = f"{row.key:<{wide}}  {row.text:<{VALUE_WIDTH}}"
        if len(line := f"{first}  {row.origin}") <= WIDTH:
            yield line
        elif len(first) <= WIDTH:
            yield from (first.rstrip(), *_indented(row.origin))
        else:
            yield from (row.key, *_indented(row.text), *_indented(row.origin))


def _indented(text: str) -> list[str]:
    return wrap(
        text,
        WIDTH,
        initial_indent=INDENT,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _resolve_or_exit(file: str | None) -> "Resolved":
    from callfuse.config import resolve

    try:
        return resolve(file)
    except ConfigError as error:
        raise _wrong(str(error)) from None


def _wrong(what: str) -> typer.Exit:
    typer.echo(what, err=True)
    return typer.Exit(2)
