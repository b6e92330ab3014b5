"""`callfuse top`: watch a running `callfuse serve` in a terminal.

The exit code is 0, 1 if the server cannot be reached or refuses it, or 2 for wrong options or a missing package.
"""

import asyncio
import signal
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import typer

from callfuse.cli.listed import print_missing
from callfuse.cli.running import RunningServer
from callfuse.cli.runs import fail, run_command
from callfuse.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

COMMAND: Final = "top"
DRAW_PER_S: Final = 4
MOST_AT_ONCE: Final = 200
"""The most sessions that are shown if there is room for any number."""


def run_top(url: str, session: str, *, once: bool) -> int:
    """Show the activity of the server whose admin page has this `url` (empty: from the settings) until Ctrl-C.
    `session`: only this one. With `once`, or if standard output is not a terminal, show only the current state. Returns
    the exit code."""
    if missing := [name for name in ("aiohttp", "rich") if find_spec(name) is None]:
        return print_missing(COMMAND, *missing)
    try:
        server = RunningServer.find(url)
    except ConfigError as error:
        return fail(COMMAND, str(error))
    return run_command(COMMAND, lambda: _show(server, session, once=once))


def _show(server: RunningServer, session: str, *, once: bool) -> int:
    from rich.console import Console

    from callfuse.cli.follow import PageRefused

    console = Console(highlight=False)
    is_live = console.is_terminal and not console.is_dumb_terminal and not once
    try:
        asyncio.run(_live(server, session, console) if is_live else _once(server, session, console))
    except PageRefused as refused:
        typer.echo(f"callfuse {COMMAND}: {refused}", err=True)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        if not is_live:
            raise
    return 0


async def _once(server: RunningServer, session: str, console: "Console") -> None:
    from callfuse.cli.follow import PageFollower
    from callfuse.cli.lanes import Screen

    follower = PageFollower(server, session, most=MOST_AT_ONCE)
    await follower.look()
    screen = Screen(server.url, whole=True)
    screen.shown, screen.state = follower.shown, follower.state
    console.print(screen, soft_wrap=True)


async def _live(server: RunningServer, session: str, console: "Console") -> None:
    from rich.live import Live

    from callfuse.cli.follow import PageFollower
    from callfuse.cli.lanes import Screen

    follower = PageFollower(server, session)
    screen = Screen(server.url)
    following = asyncio.ensure_future(follower.follow())
    with suppress(NotImplementedError):  # on Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, following.cancel)
    with Live(screen, console=console, screen=True, auto_refresh=False) as live:
        while not following.done():
            screen.shown, screen.state = follower.shown, follower.state
            live.refresh()
            await asyncio.wait([following], timeout=1 / DRAW_PER_S)
    await following
