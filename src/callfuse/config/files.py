"""The file, YAML or by its suffix TOML: a path goes in, a layer comes out whose every value knows its line."""

import os
from collections.abc import Mapping
from pathlib import Path

from callfuse.config import toml_text, yaml_text
from callfuse.config.layers import Layer, layer_of
from callfuse.config.model import KeyPath
from callfuse.config.wording import shown


def read_file(path: str | os.PathLike[str]) -> Layer:
    """The file's layer. A file that cannot be read or holds no mapping is a layer of one problem."""
    name = os.fspath(path)
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        return Layer(problems=[f"{name}: cannot read this file: {error.strerror or error}"])
    except (UnicodeDecodeError, ValueError) as error:
        return Layer(problems=[f"{name}: cannot read this file: {_reason(error)}"])
    return parse(text, name)


def parse(text: str, name: str) -> Layer:
    """The layer of the text of a file called `name`."""
    try:
        found = (toml_text if name.lower().endswith(".toml") else yaml_text).parse(text, name)
    except RecursionError:
        return Layer(problems=[f"{name}: brackets within brackets, too many to be read"])
    if found.value is None:
        return Layer(problems=found.problems)
    if not isinstance(found.value, Mapping):
        return Layer(problems=[f"{name}: holds {shown(found.value)}; use a mapping with keys such as tool_call_loop"])

    def source(path: KeyPath) -> str:
        return f"{name}, line {found.lines[path]}" if path in found.lines else name

    layer = layer_of(found.value, source)
    return Layer(layer.given, found.problems + layer.problems)


def _reason(error: ValueError) -> str:
    return f"it is not UTF-8 (byte {error.start})" if isinstance(error, UnicodeDecodeError) else str(error)
