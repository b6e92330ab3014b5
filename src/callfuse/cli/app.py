"""Define the command line: `callfuse serve`, `run`, `doctor`, `demo`, `replay`, `tune`, `feedback`, `top`, `config`.

Each command imports what it needs when it runs, so that help, version and completion answer at once. Defaults and words
of settings stand in the help texts as they are in the settings' classes; a test compares them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callfuse import __version__
from callfuse.cli.config import app as config_app
from callfuse.cli.help import NAMES, Group, SwitchCommand
from callfuse.errors import ConfigError

if TYPE_CHECKING:
    from callfuse.config import Resolved

app = typer.Typer(
    name="callfuse",
    help="The fuse between an agent and a model: it catches tool-call loops inside live LLM streams.",
    epilog="Begin with `callfuse demo`, which needs the extra demo; then try"
    " `callfuse serve --upstream https://api.openai.com`.",
    cls=Group,
    context_settings=NAMES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(config_app, name="config")

ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings, YAML or TOML; default: the file that CALLFUSE_CONFIG names, if any."),
]
# Hidden, as typer would show the type of Python beside it; the usage line and the text of the command tell of it.
Files = Annotated[list[str], typer.Argument(metavar="FILE", hidden=True)]
PageUrl = Annotated[
    str, typer.Option(metavar="URL", help="The admin page; default: that of `callfuse serve` with these settings.")
]
Source = Annotated[str, typer.Option(metavar="NAME", help="The source of all runs, in place of their own.")]


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"callfuse {__version__}")
        raise typer.Exit


@app.callback()
def callfuse(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The fuse between an agent and a model: it catches tool-call loops inside live LLM streams."""


LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="One of debug, info, warning, error; default: info.",
        autocompletion=lambda: ["debug", "info", "warning", "error"],
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="One of text, json; default: text.",
        autocompletion=lambda: ["text", "json"],
    ),
]
AccessLog = Annotated[
    str | None,
    typer.Option(metavar="on|off", help="A line for each exchange; default: on.", autocompletion=lambda: ["on", "off"]),
]


def _kinds() -> list[str]:
    """The kinds of findings, which a shell completes."""
    from callfuse.detect.registry import KINDS

    return list(KINDS)


@app.command(cls=SwitchCommand)
def serve(
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="The vendor to stand in front of, as in https://api.openai.com.")
    ] = None,
    config: ConfigFile = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen on, 0.0.0.0 for every one; default: 127.0.0.1."),
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="PORT", help="The port to listen on, 0 for a free one; default: 8100.")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N", help="Processes; more than one need a --store to know of each other; default: 1."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A Redis or Valkey that processes share, as in redis://localhost:6379; default: memory.",
        ),
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    access_log: AccessLog = None,
) -> None:
    """Stand between agents and a vendor, and stop tool-call loops on the way.

    Give the agent http://HOST:PORT as its base URL in place of the vendor's, with the path that it had (such as /v1).
    Keys, models and answers pass unchanged; only a call that would go on with a loop is held back.

    Options win over environment variables (CALLFUSE_SERVE_PORT, TOOL_LOOP_MODE, ...), and those over the file, which is
    read again when it changes and on SIGHUP.

    A browser sees the settings that hold at http://HOST:PORT/_callfuse/, with the token of CALLFUSE_ADMIN_TOKEN; where
    that is not set, one is made up and printed at the start.
    """
    of_serve = {"upstream": upstream, "host": host, "port": port, "workers": workers}
    of_serve |= {"log_level": log_level, "log_format": log_format, "access_log": access_log}
    options = {"store": store, "serve": of_serve}
    from callfuse.config.environment import CONFIG_FILE, admin_token, guardrail_key

    try:
        resolved = _resolve_for_serve(config, options)
        token = admin_token(os.environ)
        guardrail_key(os.environ)  # the admin page reads it, too late to be told so
    except ConfigError as error:
        typer.echo("callfuse: cannot start with these settings:", err=True)
        typer.echo("\n".join(f"  {line}" for line in str(error).splitlines()), err=True)
        raise typer.Exit(2) from None
    from callfuse.cli.reload import Origin
    from callfuse.cli.serve import run

    file = str(config) if config else os.environ.get(CONFIG_FILE, "").strip()
    raise typer.Exit(run(resolved, Origin.of(file, options), token))


def _resolve_for_serve(file: Path | None, options: Mapping[str, object]) -> "Resolved":
    """Load the configuration from every source. Raises ConfigError, also if there is no upstream, or if the store
    cannot be used."""
    from callfuse.config import resolve
    from callfuse.config.serve import UPSTREAM_HINT
    from callfuse.stores import require

    resolved = resolve(file, options=options)
    if resolved.config.serve.upstream is None and not resolved.config.serve.routes:
        places = "--upstream URL, the environment variable CALLFUSE_SERVE_UPSTREAM, or serve.upstream in the file"
        raise ConfigError(f"serve.upstream = null (not given): give {places}; {UPSTREAM_HINT}")
    require(resolved.config.store)
    if resolved.config.admin.enabled and resolved.config.admin.feedback_file is not None:
        from callfuse.admin.feedback import check_file

        check_file(resolved.config.admin.feedback_file)
    return resolved


@app.command(cls=SwitchCommand, context_settings={"allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", hidden=True)],
    upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The vendor; default: that of the variables, or each vendor's own."),
    ] = None,
    config: ConfigFile = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="A Redis or Valkey that knows earlier runs; default: memory.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Log to this file; default: only the lines at the end.")
    ] = None,
) -> None:
    """Run a command behind a guard of its own, and say at the end what was found: `callfuse run -- claude -p "..."`.

    The guard listens on a free port while COMMAND runs. Variables lead agents there: ANTHROPIC_BASE_URL,
    OPENAI_BASE_URL, GOOGLE_GEMINI_BASE_URL, OLLAMA_HOST and others; where one is set, its value is what the guard asks.

    The exit code is COMMAND's, or 3 if a block has ended its run; 127 if there is no such command.
    """
    from callfuse.cli.run import RunOptions, run_command_guarded

    raise typer.Exit(run_command_guarded(command, RunOptions(upstream, config, store, log)))


@app.command(cls=SwitchCommand)
def doctor(
    upstream: Annotated[str | None, typer.Option(metavar="URL", help="As of `callfuse serve`.")] = None,
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="As of `callfuse serve`.")] = None,
    port: Annotated[str | None, typer.Option(metavar="PORT", help="As of `callfuse serve`.")] = None,
    workers: Annotated[str | None, typer.Option(metavar="N", help="As of `callfuse serve`.")] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="As of `callfuse serve`.")] = None,
    request: Annotated[
        bool, typer.Option("--request", help="Ask each vendor for its models, with the key of the environment.")
    ] = False,
    explain: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Say whether this request would be guarded, or what this answer calls; - for stdin."
        ),
    ] = "",
    path: Annotated[
        str, typer.Option(metavar="PATH", help="Where that request was sent to; default: what its body tells.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is wrong with settings, packages, port, upstream and store, and what to do about it.

    Upstreams are reached as `callfuse serve` would reach them, with the same HTTP proxies and certificates. FILE is the
    body of a request or an answer, or an object with its body, path and headers.

    The exit code is 0 if all is well, 1 if there is something to do; a note asks for nothing.
    """
    from callfuse.cli.doctor import DoctorOptions, run_doctor

    of_serve = {"upstream": upstream, "host": host, "port": port, "workers": workers}
    options = {"store": store, "serve": of_serve}
    raise typer.Exit(run_doctor(DoctorOptions(config, options, request, explain, path, json)))


@app.command(cls=SwitchCommand)
def demo(
    stubborn: Annotated[
        bool, typer.Option("--stubborn", help="The model never reads the guidance, so it is blocked.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines, without colours or boxes.")] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Open the live page in a browser, and show it there too.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="N", help="The page stays up so long at the end; default: until Ctrl-C, in a terminal."),
    ] = None,
) -> None:
    """Watch a loop being caught: a scripted model, an agent and the guard, all on this machine, without any key."""
    from callfuse.cli.demo import run_demo

    raise typer.Exit(run_demo(stubborn=stubborn, plain=plain, page=page, seconds=seconds))


@app.command(cls=SwitchCommand)
def replay(
    files: Files,
    config: ConfigFile = None,
    source: Source = "",
    rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Only findings of this kind, as repeat or no_news; may be repeated.",
            autocompletion=_kinds,
        ),
    ] = None,
    show: Annotated[int, typer.Option(metavar="N", help="Print N findings with the calls around them.")] = 0,
    json: Annotated[
        str, typer.Option(metavar="PATH", help="Write figures, and what each run has, as JSON; - for stdout.")
    ] = "",
    csv: Annotated[str, typer.Option(metavar="PATH", help="Write the figures as CSV; - for standard output.")] = "",
    html: Annotated[str, typer.Option(metavar="PATH", help="Write one page with a picture of each run.")] = "",
) -> None:
    """Show what would have fired on recorded runs: tables by source and rule, single findings, a page of pictures.

    FILE is JSON Lines or JSON, plain, .gz or .xz, or - for standard input: runs as lists of calls, histories or request
    bodies of OpenAI, Anthropic, Gemini and others, logs of LiteLLM, OpenTelemetry GenAI exports.
    """
    from callfuse.cli.replay import ReplayOptions, run_replay

    reports = tuple((kind, path) for kind, path in (("json", json), ("csv", csv), ("html", html)) if path)
    raise typer.Exit(run_replay(files, ReplayOptions(config, source, tuple(rule or ()), show, reports)))


@app.command(cls=SwitchCommand)
def tune(
    files: Files,
    max_false_positive: Annotated[
        float, typer.Option(metavar="SHARE", help="Of new successful runs at most this share is acted on.")
    ] = 0.05,
    write: Annotated[
        str,
        typer.Option(metavar="FILE", help="Write the settings, also into a file that is there; - for stdout."),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings whose limits are tuned; default: the file of --write, or that of CALLFUSE_CONFIG, if any.",
        ),
    ] = None,
    source: Source = "",
    only: Annotated[
        str, typer.Option(metavar="NAME", help="Write the settings of this source, where there are several.")
    ] = "",
    feedback: Annotated[
        str, typer.Option(metavar="FILE", help="What was said of findings, as admin.feedback_file keeps it.")
    ] = "",
) -> None:
    """Set the limits by your own successful runs, so that at most a given share of such runs is acted on.

    FILE is what `callfuse replay` reads, and says of each run whether it succeeded. Each source is tuned by itself.
    """
    from callfuse.cli.tune import TuneOptions, run_tune

    raise typer.Exit(run_tune(files, TuneOptions(max_false_positive, write, config, source, only, feedback)))


@app.command(cls=SwitchCommand)
def feedback(
    finding: Annotated[str, typer.Argument(metavar="FINDING", hidden=True)],
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="One of false_positive, true_positive, too_late.",
            autocompletion=lambda: ["false_positive", "true_positive", "too_late"],
        ),
    ],
    url: PageUrl = "",
) -> None:
    """Tell a running `callfuse serve` what one of its findings was: no loop, a loop, or one that was found too late.

    FINDING is the id that events and log lines of --log-format json name it by; the live page has a button for it. The
    token is that of CALLFUSE_ADMIN_TOKEN.
    """
    from callfuse.cli.feedback import run_feedback

    raise typer.Exit(run_feedback(finding, kind, url))


@app.command(cls=SwitchCommand)
def top(
    url: PageUrl = "",
    session: Annotated[str, typer.Option(metavar="ID", help="Only this session; default: all.")] = "",
    once: Annotated[bool, typer.Option("--once", help="Print what there is now, and end.")] = False,
) -> None:
    """Watch a running `callfuse serve` in the terminal: sessions with their calls, holds, findings and what was done.

    Ctrl-C ends it. The token is that of CALLFUSE_ADMIN_TOKEN. Without a terminal it is `--once`.
    """
    from callfuse.cli.top import run_top

    raise typer.Exit(run_top(url, session, once=once))
