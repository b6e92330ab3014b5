"""`docs/settings.md` is true: it names every key, with the default, the variable and the words of the classes."""

import json
import re
from pathlib import Path

from callfuse.asgi.overrides import KEYS
from callfuse.cli.reload import FIXED
from callfuse.commands.run import KEYS as COMMANDS
from callfuse.config import load_config
from callfuse.config.environment import variables
from callfuse.config.model import dotted_name
from callfuse.config.serve import Route
from callfuse.config.versions import RENAMED
from callfuse.detect.registry import KINDS
from callfuse.policy.fields import PLACEHOLDERS
from callfuse.policy.presets import MODES
from callfuse.policy.rungs import Rung
from callfuse.policy.sections import CAPS, ModelSettings, ToolSettings, cap_key, command_key
from callfuse.reference.keys import descriptions, reference

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
FLAT = " ".join(PAGE.split())


def rows(*headings: str) -> list[str]:
    """The rows of the table below a heading, and below those within it."""
    text = PAGE
    for heading in headings:
        text = text.partition(f"\n{heading}\n")[2]
        text = re.split(rf"\n#{{1,{heading.count('#')}}} ", text)[0]
    return [line for line in text.splitlines() if line.startswith("| `")]


def cell(text: str) -> str:
    """Words as they stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def named(*names: str) -> str:
    """Names as they stand in a sentence."""
    return ", ".join(f"`{name}`" for name in names[:-1]) + f" and `{names[-1]}`"


def test_every_key_has_its_row() -> None:
    """In the order of the classes, and no other row is there."""
    expected: dict[str, list[str]] = {}
    caps = [cap_key(kind, which) for kind in KINDS for which in CAPS]
    for key in reference():
        if key.path[-1] in caps:  # the same two for every kind, which the page tells of once
            continue
        if len(key.path) > 1 or not key.section:
            heading = f"## `{key.path[0]}`" if len(key.path) > 1 else "## At the top"
            name = ".".join(key.path[1:] or key.path)
            default = "" if key.section else f"`{json.dumps(key.default, ensure_ascii=False)}`"
            variable = f"`{key.variable}`" if key.variable else ""
            row = f"| `{name}` | {default} | {variable} | {cell(key.text)} |"
            expected.setdefault(heading, []).append(row)
    assert len(expected) == 7
    for heading, of_block in expected.items():
        assert rows(heading)[: len(of_block)] == of_block


def test_every_default_cap_is_named() -> None:
    """Where there is one; and how all of them are spelt."""
    for kind in KINDS.values():
        for which, cap in zip(CAPS, (kind.most, kind.most_hard), strict=True):
            assert not cap or f"`{cap_key(kind.name, which)}: {cap}`" in FLAT
    assert "`CALLFUSE_DETECTORS_SAME_ERROR_MOST`" in FLAT
    for name in KINDS:
        assert {f"CALLFUSE_DETECTORS_{cap_key(name, which)}".upper() for which in CAPS} <= variables().keys()


def test_every_key_of_a_tier_is_named() -> None:
    """The block's own by name, the others with their words."""
    own = rows("## `tool_call_loop`", "### Per tool")
    words = descriptions(ToolSettings)
    names = [line.split("`")[1] for line in own]
    assert own == [f"| `{name}` | {cell(words[name])} |" for name in names]
    rest = [name for name in ToolSettings.model_fields if name not in names]
    assert f"A tool may have these keys of the block: {named(*rest)}." in FLAT
    assert f"A model may have these keys of the block: {named(*ModelSettings.model_fields)}." in FLAT
    assert f"The headers are {named(*(name.decode() for name in KEYS))}." in FLAT
    routes = [f"| `{name}` | {cell(text)} |" for name, text in descriptions(Route).items()]
    assert rows("## `serve`", "### Routes") == routes
    assert len(routes) == len(Route.model_fields)


def test_every_key_of_a_command_is_named() -> None:
    """With its other spelling and the key that it sets, and each of them is read."""
    own = rows("## `tool_call_loop`", "### In the chat")
    cells = [re.findall(r"`(.*?)`", line) for line in own]
    assert [(key, setting) for key, _, setting in cells] == list(COMMANDS.items())
    assert [command_key(other) for _, other, _ in cells] == list(COMMANDS)


def test_every_word_is_named() -> None:
    """Modes, rungs, placeholders, and the keys that cannot change."""
    for word in (*MODES, *Rung, *(f"{{{name}}}" for name in PLACEHOLDERS), *(path[-1] for path in FIXED)):
        assert f"`{word}`" in FLAT


def test_routes_in_a_variable() -> None:
    """As the page has them."""
    (variable,) = re.findall(r"`CALLFUSE_SERVE_ROUTES=(.*?)`", FLAT)
    assert len(load_config({}, {"CALLFUSE_SERVE_ROUTES": variable}).serve.routes) == 2


def test_every_old_name_is_named() -> None:
    """With the name that has taken its place."""
    own = [f"| `{dotted_name(old)}` | `{dotted_name(new)}` |" for old, (_, new) in RENAMED.items()]
    assert rows("## The version of the file") == own
