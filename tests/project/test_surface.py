"""What callfuse shows to the outside: public names, and a version that the changelog knows."""

import ast
import re
from collections.abc import Sequence
from importlib import import_module

import pytest

import callfuse
from tests.project.sources import Module, document, modules, parsed

SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def public_names(module: Module) -> list[str] | None:
    """The literal `__all__` of a module."""
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                names: list[str] = ast.literal_eval(value)
                return names
            case _:
                pass
    return None


def unsorted(found: Sequence[Module]) -> list[str]:
    """The modules whose public names are not in order, or stand there twice."""
    named = {module.name: names for module in found if (names := public_names(module)) is not None}
    return [name for name, names in named.items() if names != sorted(set(names), key=_kind_then_name)]


def _kind_then_name(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff keeps too."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def versions(changelog: str) -> list[tuple[str, str, list[str]]]:
    """Version, date and sections of each entry, newest first. What is not released has no version, or `unreleased`."""
    entries = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    found = []
    for entry in entries:
        head = re.match(r"(?:Unreleased|(\d+\.\d+\.\d+) \((\d{4}-\d{2}-\d{2}|unreleased)\))\n", entry)
        assert head is not None, f"an entry begins with version and date: {entry.splitlines()[0]!r}"
        found.append((head[1] or "", head[2] or "", re.findall(r"^### (.+)$", entry, re.MULTILINE)))
    return found


def faults(changelog: str) -> list[str]:
    """What is out of order in a changelog."""
    entries = versions(changelog)
    released = entries[1:] if entries and not entries[0][0] else entries
    numbers = [tuple(map(int, version.split("."))) for version, _, _ in released if version]
    dates = [date for _, date, _ in released]
    found = []
    if (
        not released
        or len(numbers) < len(released)
        or numbers != sorted(set(numbers), reverse=True)
        or dates != sorted(dates, reverse=True)
        or "unreleased" in dates[1:]
    ):
        found.append("versions, newest first")
    for version, _, sections in entries:
        if not sections or sections != [section for section in SECTIONS if section in sections]:
            found.append(f"sections of {version or 'what is not released'}")
    return found


def test_public_names_are_sorted() -> None:
    """Whoever looks for a name in an `__all__` finds it at once."""
    assert any(public_names(module) for module in modules())
    assert unsorted(modules()) == []


@pytest.mark.parametrize("names", ["['b', 'a']", "['a', 'a']", "['a', 'B']", "['Bc', 'CD']"])
def test_a_disorder_of_names_is_found(names: str) -> None:
    """Names out of order, or twice, are told."""
    assert unsorted([parsed("some", f"__all__ = {names}")]) == ["some"]


def test_public_names_exist() -> None:
    """Every name of an `__all__` can be imported; those of `integrations` are read in `test_api`."""
    for module in (one for one in modules() if one.package != "integrations"):
        for name in public_names(module) or ():
            assert hasattr(import_module(f"callfuse.{module.name}".rstrip(".")), name), f"{module.name}: {name}"


def test_the_root_s_names() -> None:
    """The whole of what `import callfuse` promises."""
    assert callfuse.__all__ == [
        "CallFuseError",
        "CallFuseMiddleware",
        "ConfigError",
        "GuardedTools",
        "LoopDetection",
        "LoopDetector",
        "LoopEvent",
        "ToolCall",
        "ToolCallLoopConfig",
        "ToolCallTracker",
        "ToolLoopError",
        "ToolLoopMode",
        "ToolResult",
        "__version__",
        "load_config",
        "with_loop_hint",
    ]


def test_the_changelog_is_in_order() -> None:
    """Newest first, each with a date, and the sections in their order."""
    assert faults(document("CHANGELOG.md")) == []


@pytest.mark.parametrize(
    "changelog",
    [
        "# Changelog\n",
        "## 0.1.0 (2026-01-01)\n\n### Added\n\n## 0.2.0 (2026-02-01)\n\n### Added\n",
        "## 0.2.0 (2026-01-01)\n\n### Added\n\n## 0.1.0 (2026-02-01)\n\n### Added\n",
        "## 0.2.0 (unreleased)\n\n### Added\n\n## 0.1.0 (unreleased)\n\n### Added\n",
        "## 0.1.0 (2026-01-01)\n\n### Fixed\n\n### Added\n",
        "## 0.1.0 (2026-01-01)\n\n### Improved\n",
        "## 0.1.0 (2026-01-01)\n\nMany things.\n",
        "## 0.1.0 (2026-01-01)\n\n### Added\n\n## Unreleased\n\n### Added\n",
    ],
)
def test_a_disorder_of_versions_is_found(changelog: str) -> None:
    """Versions or dates that go up, and sections unknown or out of order, are told."""
    assert faults(changelog) != []


def test_the_version_is_the_changelog_s_newest() -> None:
    """No version without an entry."""
    assert callfuse.__version__ == next(version for version, _, _ in versions(document("CHANGELOG.md")) if version)
