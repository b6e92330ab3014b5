"""Define the command line: `callfuse serve`, `ext-proc`, `run`, `doctor`, `demo`, `replay`, `tune`, `report`,
`feedback`, `allow`, `top`, `explain`, `config`.

Each command imports its modules when it runs, so that help, version and completion are fast. Help texts repeat defaults
and values from the settings' classes; a test compares them.
"""

import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from callfuse import __version__
from callfuse.cli.config import app as config_app
from callfuse.cli.help import NAMES, Group, SwitchCommand
from callfuse.errors import ConfigError

app = typer.Typer(
    name="callfuse",
    help="A fuse between AI agents and models: it stops tool-call loops inside live LLM streams.",
    epilog="Start with `callfuse demo` (needs the extra demo), then try"
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
    typer.Option(metavar="FILE", help="A settings file, YAML or TOML; default: the file in CALLFUSE_CONFIG, if set."),
]
# Hidden, because typer would show its Python type; the usage line and the command's text describe it.
Files = Annotated[list[str], typer.Argument(metavar="FILE", hidden=True)]
PageUrl = Annotated[
    str,
    typer.Option(
        metavar="URL", help="The URL of the admin page; default: that of `callfuse serve` with these settings."
    ),
]
Source = Annotated[str, typer.Option(metavar="NAME", help="A source name for all runs, instead of their own.")]


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
    """A fuse between AI agents and models: it stops tool-call loops inside live LLM streams."""


Upstream = Annotated[
    str | None, typer.Option(metavar="URL", help="The vendor's base URL, as in https://api.openai.com.")
]
Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="The address to listen on, 0.0.0.0 for all; default: 127.0.0.1."),
]
Port = Annotated[
    str | None, typer.Option(metavar="PORT", help="The port to listen on, 0 for a free one; default: 8100.")
]
PageHost = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="The address of the admin page, 0.0.0.0 for all; default: 127.0.0.1."),
]
PagePort = Annotated[
    str | None, typer.Option(metavar="PORT", help="The port of the admin page, 0 for a free one; default: 8100.")
]
Workers = Annotated[
    str | None,
    typer.Option(metavar="N", help="Worker processes; they share state only with a --store; default: 1."),
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="A Redis or Valkey that processes share, as in redis://localhost:6379; default: memory."
    ),
]
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
    typer.Option(
        metavar="on|off", help="Log a line for each exchange; default: on.", autocompletion=lambda: ["on", "off"]
    ),
]


def _kinds() -> list[str]:
    """Return the kinds of findings, for shell completion."""
    from callfuse.detect.registry import KINDS

    return list(KINDS)


@app.command(cls=SwitchCommand)
def serve(
    upstream: Upstream = None,
    config: ConfigFile = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    store: Store = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    access_log: AccessLog = None,
) -> None:
    """Run a reverse proxy between agents and a vendor that stops tool-call loops.

    Give the agent http://HOST:PORT as its base URL instead of the vendor's, with the same path (such as /v1). Keys,
    models and answers pass unchanged. Only calls that would continue a loop are held back.

    Options override environment variables (CALLFUSE_SERVE_PORT, CALLFUSE_MODE, ...), and those override the file. The
    file is read again when it changes and on SIGHUP.

    The admin page is at http://HOST:PORT/_callfuse/, with the token of CALLFUSE_ADMIN_TOKEN. If that is not set, a new
    token is printed at the start.
    """
    of_serve = {"upstream": upstream, "host": host, "port": port, "workers": workers}
    of_serve |= {"log_level": log_level, "log_format": log_format, "access_log": access_log}
    options = {"store": store, "serve": of_serve}
    from callfuse.cli.startup import file_of, resolve_to_serve
    from callfuse.config.environment import admin_token, guardrail_key

    try:
        resolved = resolve_to_serve(config, options)
        token = admin_token(os.environ)
        guardrail_key(os.environ)  # checked early: the admin page reads it too late
    except ConfigError as error:
        _refuse(error)
    from callfuse.cli.reload import Origin
    from callfuse.cli.serve import run

    raise typer.Exit(run(resolved, Origin.of(file_of(config), options), token))


@app.command("ext-proc", cls=SwitchCommand)
def ext_proc(
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on: HOST:PORT, or unix:PATH.")
    ] = "127.0.0.1:8102",
    upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The vendor's base URL, to ask the model again; default: it is not asked."),
    ] = None,
    config: ConfigFile = None,
    host: PageHost = None,
    port: PagePort = None,
    store: Store = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    access_log: AccessLog = None,
) -> None:
    """Guard the traffic of an Envoy, as its external processor (needs the extra envoy).

    Envoy sends requests and answers here (envoy.service.ext_proc.v3), as docs/envoy.md sets it up: the request's body
    BUFFERED, the answer's FULL_DUPLEX_STREAMED.

    Options and settings are those of `callfuse serve`. Without an upstream, callfuse blocks a call instead of asking
    the model again.

    The admin page, with /ready and /metrics, is at http://HOST:PORT/_callfuse/, with the token of CALLFUSE_ADMIN_TOKEN.
    If that is not set, a new token is printed at the start. CALLFUSE_ADMIN_ENABLED=off turns it off.
    """
    from callfuse.cli.startup import file_of, resolve_to_serve
    from callfuse.config.environment import admin_token, guardrail_key

    of_serve = {"upstream": upstream, "host": host, "port": port}
    of_serve |= {"log_level": log_level, "log_format": log_format, "access_log": access_log}
    options = {"store": store, "serve": of_serve}
    try:
        resolved = resolve_to_serve(config, options, needs_upstream=False)
        token = admin_token(os.environ)
        guardrail_key(os.environ)  # checked early: the admin page reads it too late
    except ConfigError as error:
        _refuse(error)
    from callfuse.cli.ext_proc import run as run_ext_proc
    from callfuse.cli.reload import Origin

    raise typer.Exit(run_ext_proc(resolved, Origin.of(file_of(config), options), listen, token))


def _refuse(error: ConfigError) -> NoReturn:
    """End the command because its settings are wrong."""
    typer.echo("callfuse: cannot start with these settings:", err=True)
    typer.echo("\n".join(f"  {line}" for line in str(error).splitlines()), err=True)
    raise typer.Exit(2) from None


@app.command(cls=SwitchCommand, context_settings={"allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", hidden=True)],
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The vendor's base URL; default: from the base URL variables, or each vendor's own."
        ),
    ] = None,
    config: ConfigFile = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="A Redis or Valkey that remembers earlier runs; default: memory.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Log to this file; default: print only the report at the end.")
    ] = None,
) -> None:
    """Run a command behind its own guard, and report the loops at the end: `callfuse run -- claude -p "..."`.

    The guard listens on a free port while COMMAND runs. It sets ANTHROPIC_BASE_URL, OPENAI_BASE_URL,
    GOOGLE_GEMINI_BASE_URL, OLLAMA_HOST and others for COMMAND. If a variable is set already, the guard forwards to its
    value.

    The exit code is COMMAND's, or 3 if a block ended its run, or 127 if the command is not found.
    """
    from callfuse.cli.run import RunOptions, run_command_guarded

    raise typer.Exit(run_command_guarded(command, RunOptions(upstream, config, store, log)))


@app.command(cls=SwitchCommand)
def doctor(
    upstream: Upstream = None,
    config: ConfigFile = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    store: Store = None,
    request: Annotated[
        bool, typer.Option("--request", help="Ask each vendor for its models, with the key in the environment.")
    ] = False,
    explain: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Say whether this request would be guarded, or list the calls in this answer; - for stdin.",
        ),
    ] = "",
    path: Annotated[
        str, typer.Option(metavar="PATH", help="The path of that request; default: detected from its body.")
    ] = "",
    envoy: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Check this configuration of Envoy, or of a gateway, for `callfuse ext-proc`; - for stdin.",
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check settings, packages, port, upstream and store, and say how to fix what is wrong.

    doctor connects to upstreams like `callfuse serve`, with the same HTTP proxies and certificates. FILE is the body of
    a request or an answer, or an object with its body, path and headers. With --envoy it is a configuration of Envoy,
    Istio, Envoy Gateway or agentgateway, in YAML or JSON.

    The exit code is 0 if all is well and 1 if something needs to be done. A note needs no action.
    """
    from callfuse.cli.doctor import DoctorOptions, run_doctor

    of_serve = {"upstream": upstream, "host": host, "port": port, "workers": workers}
    options = {"store": store, "serve": of_serve}
    raise typer.Exit(run_doctor(DoctorOptions(config, options, request, explain, path, envoy, json)))


@app.command(cls=SwitchCommand)
def demo(
    stubborn: Annotated[
        bool, typer.Option("--stubborn", help="The model ignores the guidance, so callfuse blocks it.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines, without colours or boxes.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Also show the demo on the live page, in a browser.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="N", help="Seconds to keep the page at the end; default: until Ctrl-C, in a terminal."),
    ] = None,
) -> None:
    """Show how callfuse stops a loop: a scripted model and an agent on this machine, without an API key."""
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
            help="Only findings of this kind, such as repeat or no_news; can be used several times.",
            autocompletion=_kinds,
        ),
    ] = None,
    show: Annotated[int, typer.Option(metavar="N", help="Print N findings with the calls around them.")] = 0,
    json: Annotated[
        str, typer.Option(metavar="PATH", help="Write the figures and each run's findings as JSON; - for stdout.")
    ] = "",
    csv: Annotated[str, typer.Option(metavar="PATH", help="Write the figures as CSV; - for stdout.")] = "",
    html: Annotated[str, typer.Option(metavar="PATH", help="Write an HTML page with a picture of each run.")] = "",
) -> None:
    """Show what callfuse would have found in recorded runs: tables, single findings, a page with pictures.

    FILE is JSON Lines or JSON (plain, .gz or .xz), or - for stdin. It contains runs as lists of calls, histories or
    request bodies of OpenAI, Anthropic, Gemini and others, logs of LiteLLM, or OpenTelemetry GenAI exports.
    """
    from callfuse.cli.replay import ReplayOptions, run_replay

    reports = tuple((kind, path) for kind, path in (("json", json), ("csv", csv), ("html", html)) if path)
    raise typer.Exit(run_replay(files, ReplayOptions(config, source, tuple(rule or ()), show, reports)))


@app.command(cls=SwitchCommand)
def tune(
    files: Files,
    max_false_positive: Annotated[
        float, typer.Option(metavar="SHARE", help="The largest share of successful runs that may be interrupted.")
    ] = 0.05,
    write: Annotated[
        str,
        typer.Option(metavar="FILE", help="Write the settings to a new or existing file; - for stdout."),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The settings to tune; default: the file of --write, or the one in CALLFUSE_CONFIG, if set.",
        ),
    ] = None,
    source: Source = "",
    only: Annotated[
        str, typer.Option(metavar="NAME", help="The source whose settings to write, if there are several.")
    ] = "",
    feedback: Annotated[
        str, typer.Option(metavar="FILE", help="Ratings of findings, as written to admin.feedback_file.")
    ] = "",
) -> None:
    """Set limits from your own successful runs, so that callfuse interrupts at most a given share of such runs.

    FILE has a format that `callfuse replay` reads, and says for each run whether it succeeded. Each source is tuned
    separately.
    """
    from callfuse.cli.tune import TuneOptions, run_tune

    raise typer.Exit(run_tune(files, TuneOptions(max_false_positive, write, config, source, only, feedback)))


@app.command(cls=SwitchCommand)
def report(
    files: Files,
    config: ConfigFile = None,
    feedback: Annotated[
        str, typer.Option(metavar="FILE", help="Ratings of findings, as written to admin.feedback_file.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what observing has shown, and whether to turn callfuse on.

    Run callfuse with `mode: observe` for a week or so. FILE is the log of `callfuse serve --log-format json` (plain,
    .gz or .xz), or - for stdin. Lines of other programs are ignored.
    """
    from callfuse.cli.report import run_report

    raise typer.Exit(run_report(files, config, feedback, json=json))


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
    """Rate a finding of a running `callfuse serve`: no loop, a loop, or a loop that was found too late.

    FINDING is the id of the finding: `finding_id` in log lines and events. The live page has buttons for the same. Set
    the server's token in CALLFUSE_ADMIN_TOKEN.
    """
    from callfuse.cli.feedback import run_feedback

    raise typer.Exit(run_feedback(finding, kind, url))


@app.command(cls=SwitchCommand)
def allow(
    finding: Annotated[str, typer.Argument(metavar="FINDING", hidden=True)],
    tool: Annotated[bool, typer.Option("--tool", help="Every call of the tool, in this session.")] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Print the lines for the settings file that let the tool pass everywhere.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what was allowed in the session.")] = False,
    client: Annotated[
        str, typer.Option(metavar="TAG", help="The client, if several have a session of this name.")
    ] = "",
    url: PageUrl = "",
) -> None:
    """Let a call pass that a running `callfuse serve` has reported as a loop, even if it was refused already.

    Without an option, only this call passes, in its conversation. FINDING is the id of the finding: `finding_id` in log
    lines and events. The live page has buttons for the same. Set the server's token in CALLFUSE_ADMIN_TOKEN.
    """
    from callfuse.cli.allow import COMMAND, run_allow
    from callfuse.cli.runs import fail

    chosen = [what for what, is_on in (("tool", tool), ("always", always), ("nothing", undo)) if is_on]
    if len(chosen) > 1:
        raise typer.Exit(fail(COMMAND, "use only one of --tool, --always and --undo"))
    raise typer.Exit(run_allow(finding, chosen[0] if chosen else "call", client, url))


@app.command(cls=SwitchCommand)
def top(
    url: PageUrl = "",
    session: Annotated[str, typer.Option(metavar="ID", help="Show only this session; default: all.")] = "",
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
) -> None:
    """Watch a running `callfuse serve` in the terminal: sessions, calls, holds, findings and actions.

    Press Ctrl-C to exit. Set the server's token in CALLFUSE_ADMIN_TOKEN. Without a terminal, `--once` is implied.
    """
    from callfuse.cli.top import run_top

    raise typer.Exit(run_top(url, session, once=once))


@app.command(cls=SwitchCommand)
def explain(
    kind: Annotated[str, typer.Argument(metavar="KIND", hidden=True, autocompletion=_kinds)] = "",
    config: ConfigFile = None,
) -> None:
    """Explain a kind of finding: what it finds, an example, its settings, what to do about false alarms.

    KIND is a name such as repeat or no_news, as findings have it. Without KIND, list all kinds and whether they are on.
    """
    from callfuse.cli.kinds import run_explain

    raise typer.Exit(run_explain(kind, config))
