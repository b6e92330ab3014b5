"""What the commands are and which extra each needs, for an installation without it. Loads no package of an extra."""

import sys
from collections.abc import Sequence
from textwrap import TextWrapper, fill
from typing import Final

from callfuse import __version__
from callfuse.errors import install_hint

COMMANDS: Final = {
    "serve": "Stand between agents and a vendor, and stop tool-call loops on the way.",
    "run": "Run a command behind a guard of its own, and say at the end what was found: "
    '`callfuse run -- claude -p "..."`.',
    "doctor": "Say what is wrong with settings, packages, port, upstream and store, and what to do about it.",
    "demo": "Watch a loop being caught: a scripted model, an agent and the guard, all on this machine, "
    "without any key.",
    "replay": "Show what would have fired on recorded runs: tables by source and rule, single findings, "
    "a page of pictures.",
    "tune": "Set the limits by your own successful runs, so that at most a given share of such runs is acted on.",
    "feedback": "Tell a running `callfuse serve` what one of its findings was: no loop, a loop, "
    "or one that was found too late.",
    "top": "Watch a running `callfuse serve` in the terminal: sessions with their calls, holds, findings "
    "and what was done.",
    "config": "Check a file of settings, begin one, or see what holds and why.",
}
"""Every command of `callfuse.cli.app`, in its order, with the first sentence of its help text."""
_PACKAGES: Final = frozenset(
    {"aiohttp", "openai", "prometheus_client", "rich", "sse_starlette", "starlette", "typer", "uvicorn", "yarl"}
)
"""Modules of packages that commands cannot do without."""


def extra_of(command: str) -> str:
    """The extra that a command needs."""
    return "demo" if command == "demo" else "serve"


def is_of_an_extra(error: ModuleNotFoundError) -> bool:
    """Whether what is missing comes with an extra."""
    return (error.name or "").partition(".")[0] in _PACKAGES


def print_missing(command: str, *packages: str) -> int:
    """Say on stderr that a command needs its extra, of which these packages are missing. Returns the exit code, 2."""
    extra = extra_of(command)
    missing = f"{' and '.join(packages)} {'is' if len(packages) == 1 else 'are'} missing"
    print(f"callfuse {command} needs the extra {extra} ({missing}): {install_hint(extra)}", file=sys.stderr)
    return 2


def answer_without(package: str, arguments: Sequence[str]) -> int:
    """Answer to the arguments of the command line, where this package is missing. Returns the exit code.

    Version and help are printed, and the code is 0. A command needs its extra, and anything else is wrong: 2.
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
    """What the commands are, and what they need."""
    line_of = TextWrapper(80, initial_indent="  ", subsequent_indent=" " * 12, break_on_hyphens=False).fill
    return "\n".join(
        [
            "Usage: callfuse [OPTIONS] COMMAND [ARGS]...",
            "",
            fill("The fuse between an agent and a model: it catches tool-call loops inside live LLM streams.", 80),
            "",
            "Options:",
            "  --version   Print the version and exit.",
            "  -h, --help  Show this message and exit.",
            "",
            "Commands:",
            *(line_of(f"{name:9} {line.replace('`', '')}") for name, line in COMMANDS.items()),
            "",
            "The commands need more than is installed here: `demo` needs the extra demo, the",
            "others need serve. The middleware, and the classes for agents, need neither.",
            'In a checkout, without an installation: uvx --from ".[demo]" callfuse demo',
            *(f"  {install_hint(extra)}" for extra in ("serve", "demo")),
        ]
    )
