"""`docs/deploy.md`: what it names exists, and what it has to copy is right."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from callfuse.config import Config
from callfuse.config.environment import admin_token, usable_token
from tests.cli.processes import CLEAN
from tests.deploy.files import debian_program, least_grace_s, loaded, settings, unknown
from tests.deploy.test_helm import SCHEMA, VALUES
from tests.deploy.test_kubernetes import manifests
from tests.deploy.test_systemd import UNIT
from tests.hosts.environments import FLAG, asked_for, environment
from tests.project.sources import PROJECT, blocks, document

PAGE = document("docs/deploy.md")
SHELL = "".join(blocks(PAGE, "sh"))


def named(name: str) -> str:
    """The block of data that begins with the name of a file."""
    [found] = [block for block in blocks(PAGE, "yaml") if block.startswith(f"# {name}\n")]
    return found


def test_files_exist() -> None:
    """Those of the repository, in commands and elsewhere."""
    found = set(re.findall(r"(?<![\w/])(?:deploy|examples|docs|tests)/[\w./-]*\w", PAGE))
    assert {"deploy/kubernetes/callfuse.yaml", "deploy/helm/callfuse", "examples/grafana"} <= found
    assert [name for name in found if not (PROJECT / name).exists()] == []
    assert (PROJECT / "deploy/kubernetes/network-policy.yaml").exists()


def test_variables_exist() -> None:
    """Those of callfuse, wherever they stand; and the image takes the argument that a build is given."""
    found = dict.fromkeys(re.findall(r"\b(?:CALLFUSE|TOOL_LOOP)_[A-Z_]+\b", PAGE))
    assert unknown(found) == {FLAG}
    for name in re.findall(r"--build-arg (\w+)=", SHELL):
        assert f"ARG {name}=" in document("Dockerfile")


def test_containers_have_time_to_end() -> None:
    """Each that is started for longer than a try."""
    times = [float(seconds) for seconds in re.findall(r"--stop-timeout (\d+)", SHELL)]
    assert len(times) == SHELL.count("docker run --name")
    assert min(times) > least_grace_s(Config())


def test_values_of_the_chart_exist() -> None:
    """On the command line and in the file, whose settings are callfuse's."""
    for path in re.findall(r"--set ([\w.]+)=", SHELL):
        found: Any = VALUES
        for name in path.split("."):
            found = found[name]
    values = yaml.safe_load(named("values.yaml"))
    jsonschema.validate(values, SCHEMA)
    env = {one["name"]: one["value"] for one in values["env"]}
    assert settings(env, yaml.safe_dump(values["settings"])).events.webhook


def test_the_ingress_leads_to_the_service() -> None:
    """By the names of the manifests, with the annotations of the chart."""
    ingress = yaml.safe_load(named("ingress.yaml"))
    [rule] = ingress["spec"]["rules"]
    service = rule["http"]["paths"][0]["backend"]["service"]
    there = manifests()["Service"]
    assert service["name"] == there["metadata"]["name"]
    assert service["port"]["name"] in {one["name"] for one in there["spec"]["ports"]}
    assert ingress["metadata"]["annotations"] == VALUES["ingress"]["annotations"]


def test_prometheus_finds_the_pods() -> None:
    """By their label and the name of their port, at the path that compose has too."""
    [job] = yaml.safe_load(named("prometheus.yml"))["scrape_configs"]
    [other] = loaded("compose/prometheus/prometheus.yml")["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == (other["job_name"], other["metrics_path"])
    pod = manifests()["Deployment"]["spec"]["template"]
    rules = {rule["source_labels"][0]: rule.get("regex") for rule in job["relabel_configs"]}
    label = rules["__meta_kubernetes_pod_label_app_kubernetes_io_name"]
    assert pod["metadata"]["labels"] == {"app.kubernetes.io/name": label}
    port = rules["__meta_kubernetes_pod_container_port_name"]
    assert port in {one["name"] for one in pod["spec"]["containers"][0]["ports"]}


def run_commands(block: str, folder: Path) -> list[str]:
    """Run a block in a copy of the files, with `/opt` and `/etc` below the folder too; returns what is asked of Docker,
    of a cluster, of systemd and of pip, which are not here, and of servers, which would not end."""
    for name in ("deploy", "opt", "etc/systemd/system", "programs"):
        (folder / name).mkdir(parents=True)
    shutil.copytree(PROJECT / "deploy", folder / "deploy", dirs_exist_ok=True)
    shutil.copy(PROJECT / "deploy/compose/config/callfuse.yaml", folder)
    asked = folder / "asked"
    programs = dict.fromkeys(
        ("docker", "kubectl", "helm", "systemctl", "pip", "granian", "hypercorn", "uvicorn"),
        f'echo "$(basename "$0") $*" >> {asked}',
    )
    for name, script in {**programs, "python3": f'exec {sys.executable} "$@"'}.items():
        (folder / "programs" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "programs" / name).chmod(0o755)
    text = re.sub(r"(?<![\w:=.])/(?=(opt|etc)/)", f"{folder}/", block.replace("/opt/callfuse/bin/pip", "pip"))
    env = {**CLEAN, "PATH": f"{folder / 'programs'}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-eu"], input=text, cwd=folder, env=env, text=True, timeout=60, check=True)
    return asked.read_text().splitlines()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("block", blocks(PAGE, "sh"), ids=lambda block: str(block.splitlines()[0][:30]))
def test_commands_run(block: str, tmp_path: Path) -> None:
    """Each in its turn, in a shell that ends with the first that fails; secrets are long enough, and shut away."""
    asked = run_commands(block, tmp_path)
    assert asked
    for line in asked:
        for found in re.findall(r"(?:admin-token|adminToken)=(\S+)", line):
            assert usable_token(found, "page") == found
    if "compose" in block:
        secrets = tmp_path / "deploy/compose/secrets"
        assert {name.name: name.stat().st_mode & 0o777 for name in secrets.iterdir()} == {
            "admin-token": 0o644,
            "grafana-password": 0o644,
        }
        assert secrets.stat().st_mode & 0o777 == 0o700
        assert admin_token({"CALLFUSE_ADMIN_TOKEN_FILE": str(secrets / "admin-token")})
    if "systemctl" in block:
        secret = tmp_path / "etc/callfuse/environment"
        assert secret.stat().st_mode & 0o777 == 0o600
        name, _, token = secret.read_text().strip().partition("=")
        assert admin_token({name: token})
        assert (tmp_path / "etc/callfuse/callfuse.yaml").stat().st_mode & 0o777 == 0o644
        assert (tmp_path / "etc/systemd/system/callfuse.service").read_text() == UNIT
        assert os.access(tmp_path / "opt/callfuse/bin/python3", os.X_OK)


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_others_take_what_is_copied(tmp_path: Path) -> None:
    """Prometheus its configuration, and Kubernetes the ingress."""
    found = named("prometheus.yml")
    assert "kubernetes_sd_configs: [{role: pod}]" in found
    # Debian leaves out what finds pods.
    (tmp_path / "prometheus.yml").write_text(
        found.replace("kubernetes_sd_configs: [{role: pod}]", "static_configs: []")
    )
    (tmp_path / "ingress.yaml").write_text(named("ingress.yaml"))
    promtool = debian_program("prometheus", "usr/bin/promtool")
    command = [promtool, "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")]
    subprocess.run(command, timeout=60, check=True)
    validate = environment("kubernetes-validate==1.37.0").with_name("kubernetes-validate")
    subprocess.run([str(validate), "--strict", str(tmp_path / "ingress.yaml")], timeout=60, check=True)
