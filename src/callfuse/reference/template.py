"""Write a template of the configuration file: every key with default, variable and description, all commented out.

A key follows `#` without a blank, and an explanation follows `# `, so that deleting the `#` before each key gives a
valid file of the defaults.
"""

import json
import textwrap
from collections.abc import Iterator

from callfuse.config.model import entry_of, item_of
from callfuse.config.versions import ABOUT, CURRENT, KEY
from callfuse.reference.keys import Key, reference

WIDTH = 100

_HEAD = (
    "Settings of callfuse: every key with its default and its environment variable. Delete the # before a "
    "key to set it. A variable overrides this file. `callfuse config check FILE` checks a file."
)


def template(*, toml: bool = False) -> str:
    """Return the template of the settings file, as YAML or TOML."""
    lines = [*_comment(_HEAD, ""), "", *_comment(ABOUT, ""), f"{KEY} = {CURRENT}" if toml else f"{KEY}: {CURRENT}"]
    for key in reference():
        lines += _in_toml(key) if toml else _in_yaml(key)
    return "\n".join(lines) + "\n"


def _in_yaml(key: Key) -> Iterator[str]:
    indent = "  " * (len(key.path) - 1)
    if len(key.path) == 1:
        yield ""
    yield from _comment(_explanation(key), indent)
    if key.section:
        yield f"{indent}{key.path[-1]}:"  # an empty section, because its keys are commented out, is allowed
    else:
        yield f"{indent}#{key.path[-1]}: {json.dumps(key.default, ensure_ascii=False)}"


def _in_toml(key: Key) -> Iterator[str]:
    table = key.path[: len(key.path) > 1 or key.section is not None]
    name = ".".join(key.path[len(table) :])
    if len(key.path) == 1:
        yield ""
    yield from _comment(_explanation(key), "")
    if not name:
        yield f"[{table[0]}]"
    elif key.default is None:
        yield f"# {name} is not set"  # TOML has no null
    elif not key.section:
        yield f"#{name} = {json.dumps(key.default, ensure_ascii=False)}"


def _explanation(key: Key) -> str:
    below = entry_of(key.field.annotation) or item_of(key.field.annotation)
    with_keys = f" Each may have the keys {', '.join(below.model_fields)}." if below else ""
    return key.text + with_keys + (f" ({key.variable})" if key.variable else "")


def _comment(text: str, indent: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        for line in textwrap.wrap(" ".join(paragraph.split()), WIDTH - len(indent), break_on_hyphens=False):
            yield f"{indent}# {line}"
