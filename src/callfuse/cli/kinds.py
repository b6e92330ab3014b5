"""`callfuse explain`: print the page of a kind of finding, or list all kinds.

The exit code is 0, or 2 if there is no such kind.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap

from callfuse.cli.runs import fail, run_command
from callfuse.config import resolve
from callfuse.detect.registry import KINDS
from callfuse.errors import ConfigError
from callfuse.policy.nearest import suggest
from callfuse.reference.kind_pages import kinds_that_are_on, page_text, summary

WIDTH = 100
"""The width of the list and of a page."""


def run_explain(kind: str, config: Path | None) -> int:
    """Print the page of a kind, or the list of kinds if `kind` is empty. Returns the exit code."""
    return run_command("explain", lambda: _print_page(kind) if kind else _print_list(config))


def _print_page(kind: str) -> int:
    if kind not in KINDS:
        return fail("explain", f"there is no kind {kind[:100]!r}; {suggest(kind[:100], KINDS)}")
    text = page_text(kind)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console()
        console.print(Markdown(text), width=min(console.width, WIDTH))
    else:
        print(text, end="")
    return 0


def _print_list(config: Path | None) -> int:
    try:
        settings = resolve(config).config.tool_call_loop
    except ConfigError as error:
        return fail("explain", str(error))
    print("\n".join(_lines(kinds_that_are_on(settings))))
    return 0


def _lines(kinds: Mapping[str, bool]) -> Iterator[str]:
    """Format the kinds, one on each line. Long texts continue on indented lines."""
    wide = max(map(len, kinds))
    for kind, is_on in kinds.items():
        head = f"{kind:<{wide}}  {'on' if is_on else 'off':<3}  "
        yield from wrap(summary(kind), WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
