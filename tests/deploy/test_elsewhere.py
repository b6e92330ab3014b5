"""Files for pre-commit, dev containers, conda and Homebrew: what they name is there, as the package has it."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from callfuse import __version__
from callfuse.config import load_config
from callfuse.config.serve import ServeSettings
from tests.deploy.test_workflows import pythons
from tests.docs.commands import commands_in, wrong_in
from tests.hosts.environments import asked_for, environment
from tests.project.sources import PROJECT, document
from tests.project.test_building import METADATA, targets

[HOOK] = yaml.safe_load(document(".pre-commit-hooks.yaml"))
CONTAINER: dict[str, Any] = json.loads(document(".devcontainer/devcontainer.json"))
RECIPE: dict[str, Any] = yaml.safe_load(document("deploy/conda/recipe.yaml"))
FORMULA = document("deploy/homebrew/callfuse.rb")
FULL = [*METADATA["project"]["dependencies"], *METADATA["project"]["optional-dependencies"]["serve"]]
CONDA_NAMES = {"backports-zstd": "backports.zstd", "prometheus-client": "prometheus_client"}
"""What packages are called there, if not as on the package index."""


def wrong(*lines: str) -> list[str]:
    """What is wrong with commands."""
    return [why for line in lines for one in commands_in(line) if (why := wrong_in(one))]


def test_the_hook() -> None:
    """Its command exists; what it installs is what the package asks for; it takes settings files."""
    assert wrong(HOOK["entry"]) == []
    assert set(HOOK["additional_dependencies"]) <= set(FULL)
    taken = ["callfuse.yaml", "config/callfuse.yml", "a/callfuse.toml"]
    assert [name for name in taken if not re.search(HOOK["files"], name)] == []
    assert [name for name in ("notcallfuse.yaml", "callfuse.yaml.bak") if re.search(HOOK["files"], name)] == []
    assert (PROJECT / "deploy/compose/config/callfuse.yaml").exists()


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pre_commit_runs_it(tmp_path: Path) -> None:
    """It fails for a wrong file, and passes for a right one."""
    program = environment("pre-commit==4.3.0").with_name("pre-commit")
    git = shutil.which("git") or "git"
    (tmp_path / "callfuse.yaml").write_text("tool_call_loop: {mode: blok}\n", encoding="utf-8")
    for arguments in (["init", "-q"], ["add", "."]):
        subprocess.run([git, *arguments], cwd=tmp_path, check=True)
    command = [str(program), "try-repo", str(PROJECT), HOOK["id"], "--all-files", "--verbose"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert "tool_call_loop.mode = 'blok' (callfuse.yaml, line 1)" in done.stdout, done.stderr
    assert done.returncode == 1
    (tmp_path / "callfuse.yaml").write_text("tool_call_loop: {mode: block}\n", encoding="utf-8")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert "callfuse.yaml is valid: it sets 1 key" in done.stdout, done.stderr
    assert done.returncode == 0


def test_the_dev_container() -> None:
    """A Python that is tested, the project's own setup, and the port on which `callfuse serve` listens."""
    assert CONTAINER["image"].rpartition(":")[2] in pythons()
    assert shlex.split(CONTAINER["postCreateCommand"]) == ["make", "setup"]
    assert "setup" in targets(document("Makefile"))
    assert CONTAINER["forwardPorts"] == [ServeSettings().port]
    path = CONTAINER["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert path.endswith("/.venv/bin/python")


def test_the_recipe_requires_what_the_package_does() -> None:
    """Each with its floor, except what not every system has; the version is the package's."""
    assert RECIPE["schema_version"] == 1
    assert RECIPE["context"]["version"] == __version__
    assert f">={RECIPE['context']['python_min']}" == METADATA["project"]["requires-python"]
    asked: dict[str, SpecifierSet] = {}
    for one in map(Requirement, FULL):  # what an extra asks for comes behind what the core does, and is never lower
        if one.name != "uvloop":
            asked[CONDA_NAMES.get(one.name, one.name)] = one.specifier
    python, *rest = RECIPE["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert {name: SpecifierSet(bound) for name, _, bound in (line.partition(" ") for line in rest)} == asked
    hatchling = METADATA["build-system"]["requires"][0]
    assert [line.replace(" ", "") for line in RECIPE["requirements"]["host"]][-1] == hatchling
    assert RECIPE["build"]["python"]["entry_points"] == [f"callfuse = {METADATA['project']['scripts']['callfuse']}"]


def test_the_recipe_s_own_tests() -> None:
    """Its commands and modules exist, and its words are the package's."""
    imports, script = RECIPE["tests"]
    assert wrong(*script["script"]) == []
    assert all(
        (PROJECT / "src" / name.replace(".", "/") / "__init__.py").exists() for name in imports["python"]["imports"]
    )
    assert RECIPE["about"]["summary"] == METADATA["project"]["description"]
    assert RECIPE["about"]["homepage"] == METADATA["project"]["urls"]["Source"]
    assert (PROJECT / "deploy/conda" / RECIPE["source"]["path"] / RECIPE["about"]["license_file"]).exists()


def test_the_formula() -> None:
    """Its commands exist, its Python is tested, its settings can be read; blocks begin and end."""
    commands = [
        " ".join(["callfuse", *(word.strip('"') for word in words.split(", ") if word[0] == '"')])
        for words in re.findall(r'bin/"callfuse", ([^\]\n]+)', FORMULA)
    ]
    commands += re.findall(r"/(callfuse explain [^\"]+)\"", FORMULA)
    assert len(commands) == 4
    assert wrong(*commands) == []
    assert set(re.findall(r"python@?(3\.\d+)", FORMULA)) <= set(pythons())
    [settings] = re.findall(r'write "(.+)"', FORMULA)
    assert load_config(yaml.safe_load(settings.replace("\\n", "\n")), {}) != load_config({}, {})
    assert f'homepage "{METADATA["project"]["urls"]["Source"]}"' in FORMULA
    assert f'license "{METADATA["project"]["license"]}"' in FORMULA
    opened = re.findall(r"^ *(?:class|def)\b|\bdo$", FORMULA, re.MULTILINE)
    assert len(opened) == len(re.findall(r"^ *end$", FORMULA, re.MULTILINE))
    [about] = re.findall(r'^  desc "(.+)"', FORMULA, re.MULTILINE)
    assert len(about) <= 80
    assert not about.lower().startswith(("a ", "an ", "the ", "callfuse"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ruby") is None, reason="ruby is not installed")
def test_ruby_reads_the_formula() -> None:
    """Its syntax is right."""
    subprocess.run(["ruby", "-c", PROJECT / "deploy/homebrew/callfuse.rb"], capture_output=True, timeout=60, check=True)
