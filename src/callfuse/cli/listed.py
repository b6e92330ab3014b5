"""List the commands and the extra that each needs, for an installation without extras. Loads no package of an extra."""

import sys
from collections.abc import Sequence
from textwrap import TextWrapper, fill
from typing import Final

from callfuse import __version__
from callfuse.errors import install_hint

COMMANDS: Final = {
    "serve": "Run a reverse proxy between agents and a vendor that stops tool-call loops.",
    "ext-proc": "Guard the traffic of an Envoy, as its external processor (needs the extra envoy).",
    "run": 'Run a command behind its own guard, and report the loops at the end: `callfuse run -- claude -p "..."`.',
    "doctor": "Check settings, packages, port, upstream and store, and say how to fix what is wrong.",
    "demo": "Show how callfuse stops a loop: a scripted model and an agent on this machine, without an API key.",
    "replay": "Show what callfuse would have found in recorded runs: tables, single findings, a page with pictures.",
    "tune": "Set limits from your own successful runs, so that callfuse interrupts at most a given share of such runs.",
    "report": "Say what observing has shown, and whether to turn callfuse on.",
    "feedback": "Rate a finding of a running `callfuse serve`: no loop, a loop, or a loop that was found too late.",
    "allow": "Let a call pass that a running `callfuse serve` has reported as a loop, even if it was refused already.",
    "top": "Watch a running `callfuse serve` in the terminal: sessions, calls, holds, findings and actions.",
    "explain": "Explain a kind of finding: what it finds, an example, its settings, what to do about false alarms.",
    "config": "Check a settings file, create one, or show the settings in effect.",
}
"""Every command of `callfuse.cli.app`, in its order, with the first sentence of its help text."""
_PACKAGES: Final = frozenset(
    {
        "aiohttp",
        "envoy",
        "google",
        "grpc",
        "openai",
        "prometheus_client",
        "rich",
        "sse_starlette",
        "starlette",
        "typer",
        "uvicorn",
        "yarl",
    }
)
"""Modules of packages that commands require."""


def extra_of(command: str) -> str:
    """Return the extra that a command needs."""
    return {"demo": "demo", "ext-proc": "envoy"}.get(command, "serve")


def is_of_an_extra(error: ModuleNotFoundError) -> bool:
    """Whether a missing package belongs to an extra."""
    return (error.name or "").partition(".")[0] in _PACKAGES


def print_missing(command: str, *packages: str) -> int:
    """Print on stderr that a command needs its extra, because these packages are missing. Returns the exit code, 2."""
    extra = extra_of(command)
    missing = f"{' and '.join(packages)} {'is' if len(packages) == 1 else 'are'} missing"
    print(f"callfuse {command} needs the extra {extra} ({missing}): {install_hint(extra)}", file=sys.stderr)
    return 2


def answer_without(package: str, arguments: Sequence[str]) -> int:
    """Handle the arguments of the command line if `package` is missing. Returns the exit code.

    Version and help are printed, with code 0. For a command, which needs its extra, and anything else, the code is 2.
    """
    first = arguments[0] if arguments else "--help"
    if first in COMMANDS:
        return print_missing(first, package)
    if first == "--version":
        print(f"callfuse {__version__}")
        return 0
    if first in ("-h", "--help"):
        print(_help())
        return 0
    what = f"option: {first}" if first.startswith("-") else f"command {first!r}"
    print(f"callfuse: there is no such {what}; callfuse --help lists the commands", file=sys.stderr)
    return 2


def _help() -> str:
    """Return the list of commands, with the extra of each."""
    line_of = TextWrapper(80, initial_indent="  ", subsequent_indent=" " * 12, break_on_hyphens=False).fill
    return "\n".join(
        [
            "Usage: callfuse [OPTIONS] COMMAND [ARGS]...",
            "",
            fill("A fuse between AI agents and models: it stops tool-call loops inside live LLM streams.", 80),
            "",
            "Options:",
            "  --version   Print the version and exit.",
            "  -h, --help  Show this message and exit.",
            "",
            "Commands:",
            *(line_of(f"{name:9} {line.replace('`', '')}") for name, line in COMMANDS.items()),
            "",
            "The commands need extras that are not installed: `demo` needs the extra demo,",
            "`ext-proc` the extra envoy, the others need serve. The middleware and the",
            "classes for agents need none.",
            'In a checkout, without an installation: uvx --from ".[demo]" callfuse demo',
            *(f"  {install_hint(extra)}" for extra in ("serve", "demo")),
        ]
    )
