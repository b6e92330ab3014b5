"""The command line: `callfuse serve`, `callfuse demo`, `callfuse --version`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from callfuse import __version__
from callfuse.config import Config, load_config
from callfuse.errors import ConfigError
from callfuse.proxy.settings import LOG_LEVELS, RIGHT_UPSTREAM, ServeSettings

app = typer.Typer(
    name="callfuse",
    help="The fuse between an agent and a model: it catches tool-call loops inside live LLM streams.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"callfuse {__version__}")
        raise typer.Exit


@app.callback()
def callfuse(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The fuse between an agent and a model: it catches tool-call loops inside live LLM streams."""


def _else(key: str) -> str:
    """What holds where neither option nor environment nor file say otherwise, for the help text."""
    return f"{ServeSettings.model_fields[key].default} where nothing says otherwise."


@app.command()
def serve(
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="The vendor to stand in front of, as in https://api.openai.com.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings in YAML; the file that CALLFUSE_CONFIG names where not given."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help=f"The address to listen on, 0.0.0.0 for every one; {_else('host')}")
    ] = None,
    port: Annotated[int | None, typer.Option(help=f"The port to listen on, 0 for a free one; {_else('port')}")] = None,
    workers: Annotated[
        int | None, typer.Option(help=f"Processes, each with sessions of its own; {_else('workers')}")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help=f"One of {', '.join(LOG_LEVELS)}; {_else('log_level')}")
    ] = None,
) -> None:
    """Stand between agents and a vendor, and stop tool-call loops on the way.

    Give the agent http://HOST:PORT as its base URL in place of the vendor's, with the path that it had (such as /v1).
    Keys, models and answers pass unchanged; only a call that would go on with a loop is held back.

    Options win over environment variables (CALLFUSE_SERVE_PORT, TOOL_LOOP_MODE, ...), and those over the file.
    """
    options = {"upstream": upstream, "host": host, "port": port, "workers": workers, "log_level": log_level}
    try:
        settled = _settled(config, options)
    except ConfigError as error:
        typer.echo("callfuse: cannot start with these settings:", err=True)
        typer.echo("\n".join(f"  {line}" for line in str(error).splitlines()), err=True)
        raise typer.Exit(2) from None
    from callfuse.cli.serve import run

    raise typer.Exit(run(settled))


def _settled(file: Path | None, options: Mapping[str, object]) -> Config:
    """The configuration of every source; `ConfigError` also where it names nothing to stand in front of."""
    config = load_config(file, options=options)
    if config.serve.upstream is None:
        places = "--upstream URL, the environment variable CALLFUSE_SERVE_UPSTREAM, or serve.upstream in the file"
        raise ConfigError(f"serve.upstream = null (not given): give {places}; {RIGHT_UPSTREAM}")
    return config


@app.command()
def demo(
    stubborn: Annotated[
        bool, typer.Option("--stubborn", help="The model never reads the guidance, so it is blocked.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines, without colours or boxes.")] = False,
) -> None:
    """Watch a loop being caught: a scripted model, an agent and the guard, all on this machine, without any key."""
    from callfuse.cli.demo import run_demo

    raise typer.Exit(run_demo(stubborn=stubborn, plain=plain))
