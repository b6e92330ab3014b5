"""What pages write between backticks is there: commands with their options, variables, settings."""

import re

import pytest
import yaml

from callfuse.config import Config, load_config
from callfuse.config.environment import ADMIN_TOKEN, CONFIG_FILE, GUARDRAIL_KEY, IN_FILES, SYNONYMS, variables
from callfuse.config.secret_files import SUFFIX
from callfuse.errors import ConfigError
from callfuse.policy.settings import LoopSettings
from tests.docs import given
from tests.docs.blocks import pages
from tests.docs.commands import commands_in, wrong_in
from tests.hosts.environments import FLAG
from tests.project.sources import document, quoted

PROGRAMS = ("callfuse ", "make ", "pip ", "python -m ", "uvx ", "vllm ")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"\b(?:CALLFUSE|TOOL_LOOP)_[A-Z0-9_]*[A-Z0-9]\b")
_SETTING = re.compile(r"(\w+): .+")


def prose(page: str) -> list[str]:
    """What stands between backticks outside of blocks."""
    return quoted(_FENCED.sub("", document(page)))


def commands(page: str) -> list[str]:
    """The commands among it."""
    return [text for text in prose(page) if text.startswith(PROGRAMS)]


def wrong_commands(texts: list[str]) -> list[str]:
    """Those that could not run."""
    return [text for text in texts if text not in given.NO_COMMANDS and any(map(wrong_in, commands_in(text)))]


def wrong_setting(text: str) -> str:
    """What is wrong with a setting as it is written in a sentence, `key: value`; nothing if it can be set."""
    key, _, value = text.partition(": ")
    content = yaml.safe_load(f"{{{key}: {value}}}")
    try:
        load_config(content if key in Config.model_fields else {"tool_call_loop": content}, {})
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", pages())
def test_commands_could_run(page: str) -> None:
    """Each subcommand, option, target, program and extra is there."""
    assert wrong_commands(commands(page)) == []


@pytest.mark.parametrize("page", pages())
def test_variables_are_read(page: str) -> None:
    """Each that begins as callfuse's own, in blocks, too."""
    by_themselves = (ADMIN_TOKEN, GUARDRAIL_KEY)
    known = {
        CONFIG_FILE,
        FLAG,
        *variables(),
        *SYNONYMS,
        *IN_FILES,
        *by_themselves,
        *(name + SUFFIX for name in by_themselves),
    }
    assert sorted(set(_VARIABLE.findall(document(page))) - known) == []


@pytest.mark.parametrize("page", pages())
def test_settings_can_be_set(page: str) -> None:
    """Each of a key of the file, or of its block `tool_call_loop`, with a value."""
    fields = {*Config.model_fields, *LoopSettings.model_fields}
    shown = [text for text in prose(page) if (found := _SETTING.fullmatch(text)) and found[1] in fields]
    wrong = {text: wrong_setting(text) for text in shown if text not in given.NO_SETTINGS}
    assert [text for text, why in wrong.items() if why] == []


def test_they_are_read_from_the_pages() -> None:
    """And not missed."""
    found = {text.split()[0] for page in pages() for text in commands(page)}
    assert {"callfuse", "make", "pip", "python", "vllm"} <= found
    assert "mode: observe" in prose("docs/troubleshooting.md")
    every = {text for page in pages() for text in prose(page)}
    assert {*given.NO_COMMANDS, *given.NO_SETTINGS} <= every


@pytest.mark.parametrize("text", ["callfuse watch", "make lunch", "python -m benchmarks.nothing", "pip install '.[x]'"])
def test_a_wrong_command_is_found(text: str) -> None:
    """It is told."""
    assert wrong_commands([text]) == [text]


@pytest.mark.parametrize("text", ["mode: sometimes", "max_repeats: -1", "serve: {ports: 1}"])
def test_a_wrong_setting_is_found(text: str) -> None:
    """A value or key that callfuse would refuse."""
    assert wrong_setting(text) != ""
