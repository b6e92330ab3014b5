"""`callfuse config`: check a file, write a new one, print the schema, explain the settings in effect.

Results go to standard output, problems to standard error. The exit code is 0, or 2 if there are problems.
"""

import json as json_text
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from callfuse.config import Resolved, model_problem, resolve
from callfuse.config.effective import Row, as_json, as_text, effective_rows, value_at
from callfuse.config.model import dotted_name
from callfuse.config.schema import json_schema
from callfuse.config.template import template
from callfuse.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Check a file of settings, begin one, or see what holds and why.")


@app.command()
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Settings in YAML, or in TOML with the suffix .toml.")],
) -> None:
    """Say what a file sets (exit code 0), or everything that is wrong with it (2). The environment stays out of it."""
    resolved = _resolve_or_exit(file, {})
    for path, source in resolved.sources.items():
        typer.echo(f"{dotted_name(path)} = {as_text(value_at(resolved.config, path))} ({source})")
    keys = len(resolved.sources)
    typer.echo(f"{file} is right: it sets {keys} key{'' if keys == 1 else 's'}")


@app.command()
def init(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A file that is not there yet, .toml for TOML; else standard output."),
    ] = None,
) -> None:
    """Write a file with every key, its default, its environment variable and what it is for, all commented out."""
    text = template(toml=file is not None and file.lower().endswith(".toml"))
    if file is None:
        typer.echo(text, nl=False)
        return
    try:
        with Path(file).open("x", encoding="utf-8") as new:
            new.write(text)
    except OSError as error:
        raise _wrong(f"cannot write {file}: {error.strerror}; use the name of a new file") from None


@app.command()
def schema() -> None:
    """Print the JSON schema of the file, with which editors complete and check it."""
    typer.echo(json_text.dumps(json_schema(), indent=2))


@app.command()
def explain(
    model: Annotated[
        str, typer.Option(metavar="BACKEND:MODEL", help="What holds for this model, as in openai:gpt-4o.")
    ] = "",
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="What holds for this tool.")] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Settings; the file that CALLFUSE_CONFIG names where not given."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON list of key, value, tier and source.")] = False,
) -> None:
    """Print every setting as it holds for a model and a tool, with the tier and the source that it is from.

    Per-tool entries win over those of models, these over the environment, this over the file, and that over defaults.
    """
    resolved = _resolve_or_exit(config)
    if model and (wrong := model_problem(model, resolved.config)):
        raise _wrong(f"--model {model!r}: {wrong}")
    rows = list(effective_rows(resolved, model, tool))
    if json:
        typer.echo(as_json(rows))
    else:
        typer.echo("\n".join(_table(rows)))


def _table(rows: Iterable[Row]) -> Iterable[str]:
    cells = [(row.key, row.text, row.origin) for row in rows]
    wide = [min(max(len(cell[at]) for cell in cells), 60) for at in (0, 1)]
    return (f"{key:<{wide[0]}}  {value:<{wide[1]}}  {source}" for key, value, source in cells)


def _resolve_or_exit(file: str | None, env: dict[str, str] | None = None) -> Resolved:
    try:
        return resolve(file, env)
    except ConfigError as error:
        raise _wrong(str(error)) from None


def _wrong(what: str) -> typer.Exit:
    typer.echo(what, err=True)
    return typer.Exit(2)
