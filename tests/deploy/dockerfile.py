"""Runs the steps of a Dockerfile in a folder, without containers.

`/opt/callfuse` of an image is `FOLDER/root/opt/callfuse` here: each stage begins with an empty root, in which the
programs of the base image are those of this machine. In: the Dockerfile's text, the files that it copies from, and a
folder with a `python` and a `pip`. Out: what the image would run, and how.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

PLACES = ("src", "dist", "opt")
"""Folders at the root that steps may name; each is moved into the folder of the test."""
STEP_S = 600


@dataclass
class Image:
    """`env` are its variables, `commands` its ENTRYPOINT, CMD and HEALTHCHECK, `user` its user and group as text."""

    root: Path
    env: dict[str, str]
    folder: Path
    user: str = "0:0"
    ports: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction with its arguments as one line, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    parts = [line.strip().split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name.upper(), rest) for name, rest in parts]


def context(project: Path, folder: Path) -> Path:
    """A copy of what `.dockerignore` lets through, which is a list of what is needed."""
    rules = [line for line in (project / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    first, *named, last = rules
    assert (first, last) == ("*", "**/__pycache__")
    folder.mkdir()
    for rule in named:
        source = project / rule.removeprefix("!")
        if source.is_dir():
            target = folder / source.relative_to(project)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    return folder


class Build:
    """Runs the steps; `image` is that of the stage which is being built, in the end of the last one. `given` are the
    `--build-arg`s."""

    def __init__(self, folder: Path, files: Path, programs: Path, given: Mapping[str, str]) -> None:
        self._folder = folder
        self._files = files
        self._programs = programs
        self._given = given
        self._stages: dict[str, Path] = {}
        self._arguments: dict[str, str] = {}
        self._name = ""
        self.image = Image(folder / "root", {}, folder / "root")

    def run(self, text: str) -> Image:
        """Run each instruction, and return the image of the last stage."""
        for name, rest in instructions(text):
            getattr(self, f"_{name.lower()}")(rest)
        return self.image

    def _inside(self, text: str) -> str:
        """A text whose paths at the root of the image lie within the folder."""
        return re.sub(rf"(?<![\w./}}-])/(?=({'|'.join(PLACES)})\b)", f"{self.image.root}/", text)

    def _expand(self, text: str) -> str:
        return Template(text).safe_substitute({**self._arguments, **self.image.env})

    def _from(self, rest: str) -> None:
        if self.image.env:
            self._stages[self._name] = self.image.root.rename(self._folder / f"stage-{self._name}")
        words = self._expand(rest).split()
        assert re.fullmatch(r"python:3\.\d+-slim", words[0]), words
        self._name = words[2] if len(words) == 3 else "last"
        path = os.pathsep.join([str(self._programs), "/usr/bin", "/bin"])
        self.image = Image(self._folder / "root", {"PATH": path}, self._folder / "root")
        self.image.root.mkdir()

    def _arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self._arguments[name] = self._given.get(name, value.strip('"'))

    def _env(self, rest: str) -> None:
        for word in shlex.split(rest):
            name, _, value = word.partition("=")
            self.image.env[name] = self._expand(self._inside(value))

    def _label(self, rest: str) -> None:
        self.image.labels |= dict(word.split("=", 1) for word in shlex.split(rest))

    def _workdir(self, rest: str) -> None:
        self.image.folder = Path(self._inside(rest)) if rest != "/" else self.image.root
        self.image.folder.mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        *sources, to = rest.split()
        files = self._files
        if sources[0].startswith("--from="):
            files = self._stages[sources.pop(0).removeprefix("--from=")]
        target = self.image.folder / self._inside(to)
        for source in sources:
            path = files / source.lstrip("/")
            if path.is_dir():
                shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy(path, target)

    def _run(self, rest: str) -> None:
        command = ["sh", "-ec", self._inside(rest)]
        env = {**self._arguments, **self.image.env, "HOME": str(self._folder)}
        subprocess.run(command, cwd=self.image.folder, env=env, timeout=STEP_S, check=True)

    def _user(self, rest: str) -> None:
        self.image.user = rest

    def _expose(self, rest: str) -> None:
        self.image.ports += rest.split()

    def _healthcheck(self, rest: str) -> None:
        self.image.commands["HEALTHCHECK"] = json.loads(rest[rest.index("[") :])

    def _entrypoint(self, rest: str) -> None:
        self.image.commands["ENTRYPOINT"] = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self.image.commands["CMD"] = json.loads(rest)
