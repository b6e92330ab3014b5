"""Read the page of each kind of finding, from `docs/kinds`. A wheel contains these pages."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from callfuse.detect.detector import Detector
from callfuse.detect.registry import REGISTERED
from callfuse.model import ANY_TOOL
from callfuse.observe.pages import DOCUMENTATION
from callfuse.policy.settings import LoopSettings

_FOLDERS: Final = (Path(__file__).parent / "kinds", Path(__file__).parents[3] / "docs" / "kinds")
"""The folders in an installed package, and in a checkout."""
_LINK: Final = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")


def page_text(kind: str) -> str:
    """Return the page of a kind as Markdown, with absolute links to the documentation. Raises OSError if the
    installation is incomplete."""
    page = next((folder / f"{kind}.md" for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0] / f"{kind}.md")
    return _LINK.sub(_absolute, page.read_text(encoding="utf-8"))


def summary(kind: str) -> str:
    """Return the first sentence of a kind's page: what the kind finds."""
    return page_text(kind).split("\n\n")[1].strip()


def kinds_that_are_on(settings: LoopSettings) -> Mapping[str, bool]:
    """Return every kind, in the order of the registry, and whether any tool can have a finding of it."""
    tool = settings.for_tool(ANY_TOOL)
    own, found = tool.settings, dict[str, bool]()
    for one in REGISTERED:
        name = one.kind.name
        limit = one.limits(tool)[0] if isinstance(one, Detector) else own.limit_of(name)
        found[name] = found.get(name, False) or (own.enabled and own.detectors.finds(name) and limit > 0)
    return found


def _absolute(link: re.Match[str]) -> str:
    path, anchor = link[1], link[2] or ""
    place = path.removeprefix("../") if path.startswith("../") else f"kinds/{path}"
    return f"]({DOCUMENTATION}/{place}{anchor})"
