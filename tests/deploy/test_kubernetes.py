"""The manifests: what they name exists in callfuse and in each other, and the pods may do no more than they need."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from callfuse import __version__
from callfuse.admin.readiness import PARTS
from callfuse.cli.reload import file_version
from callfuse.config import Config
from tests.deploy.files import DEPLOY, least_grace_s, settings, unknown
from tests.hosts.environments import asked_for, environment
from tests.project.sources import document

FOLDER = DEPLOY / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
BESIDE_BOUNDS = 128 << 20
"""Bytes of memory for Python with what it has imported."""
PAGE_AND_FEED = 72 << 20
"""Bytes that the live page and the feed keep at most."""
Manifest = dict[str, Any]


def parse(text: str) -> dict[str, Manifest]:
    """The objects of a text of YAML, by their kinds, of which there is one each."""
    found = [one for one in yaml.safe_load_all(text) if one]
    kinds = [one["kind"] for one in found]
    assert len(kinds) == len(set(kinds)), kinds
    return dict(zip(kinds, found, strict=True))


def manifests() -> dict[str, Manifest]:
    """All objects of the folder."""
    return parse("\n---\n".join(path.read_text(encoding="utf-8") for path in FILES))


def container(deployment: Manifest) -> Manifest:
    """The only one of the pods."""
    [found] = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def plain_variables(deployment: Manifest) -> dict[str, str]:
    """Those that stand in the manifest."""
    return {one["name"]: one["value"] for one in container(deployment).get("env", ()) if "value" in one}


def config_of(objects: dict[str, Manifest]) -> Config:
    """What callfuse is set to by a manifest."""
    [text] = objects["ConfigMap"]["data"].values()
    return settings(plain_variables(objects["Deployment"]), text)


def in_bytes(amount: str) -> int:
    """An amount of memory."""
    found = re.fullmatch(r"(\d+)(Mi|Gi)", amount)
    assert found, amount
    return int(found[1]) << {"Mi": 20, "Gi": 30}[found[2]]


def seconds_before_the_signal(found: Manifest) -> float:
    """How long its `preStop` sleeps."""
    [name, number] = found["lifecycle"]["preStop"]["exec"]["command"]
    assert name == "sleep"
    return float(number)


def faults_of_settings(objects: dict[str, Manifest]) -> Iterator[str]:
    """Variables that are not callfuse's, secrets in the open, and a file that is not where it is looked for."""
    found = container(objects["Deployment"])
    env = {one["name"]: one for one in found["env"]}
    yield from unknown(env)
    yield from (name for name, one in env.items() if re.search("TOKEN|KEY|STORE", name) and "valueFrom" not in one)
    [mount] = [one for one in found["volumeMounts"] if one["name"] == "config"]
    [name] = objects["ConfigMap"]["data"]
    if env["CALLFUSE_CONFIG"]["value"] != f"{mount['mountPath']}/{name}":
        yield "CALLFUSE_CONFIG"
    if "subPath" in mount:  # a file that is mounted by itself never changes
        yield "subPath"
    volumes = {one["name"]: one for one in objects["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    if volumes["config"]["configMap"]["name"] != objects["ConfigMap"]["metadata"]["name"]:
        yield "configMap"
    if {one["name"] for one in found["volumeMounts"]} != set(volumes):
        yield "volumes"


def faults_of_probes(objects: dict[str, Manifest]) -> Iterator[str]:
    """Probes that ask what callfuse does not answer, or at another port."""
    found, config = container(objects["Deployment"]), config_of(objects)
    ports = {one["name"]: one["containerPort"] for one in found["ports"]}
    if set(ports.values()) != {config.serve.port}:
        yield "containerPort"
    of_probes = {"startupProbe": "health", "livenessProbe": "health", "readinessProbe": "ready"}
    for probe, route in of_probes.items():
        asked = found[probe]["httpGet"]
        path, _, query = asked["path"].partition("?")
        if asked["port"] not in ports or path != f"{config.admin.path}/{route}":
            yield probe
        if not {part.removeprefix("exclude=") for part in query.split("&") if part} <= set(PARTS):
            yield f"{probe}: {query}"


def faults_of_ending(objects: dict[str, Manifest]) -> Iterator[str]:
    """A pod that is killed while streams may still end."""
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    before_s = seconds_before_the_signal(container(objects["Deployment"]))
    if pod["terminationGracePeriodSeconds"] <= least_grace_s(config_of(objects), before_s):
        yield "terminationGracePeriodSeconds"


def faults_of_rights(deployment: Manifest) -> Iterator[str]:
    """What a pod may do without need. Pod Security's level `restricted`, and a root that is read-only."""
    pod, own = deployment["spec"]["template"]["spec"], container(deployment)["securityContext"]
    wanted = {
        "runAsNonRoot": pod["securityContext"]["runAsNonRoot"],
        "seccompProfile": pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": not own["allowPrivilegeEscalation"],
        "readOnlyRootFilesystem": own["readOnlyRootFilesystem"],
        "capabilities": own["capabilities"] == {"drop": ["ALL"]},
        "automountServiceAccountToken": not pod["automountServiceAccountToken"],
    }
    yield from (name for name, is_right in wanted.items() if is_right is not True)


def faults_of_names(objects: dict[str, Manifest]) -> Iterator[str]:
    """Selectors that miss the pods, and references to what is called otherwise."""
    deployment = objects["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = {
        "Deployment": deployment["spec"]["selector"]["matchLabels"],
        "Service": objects["Service"]["spec"]["selector"],
        "PodDisruptionBudget": objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    }
    if "NetworkPolicy" in objects:
        selectors["NetworkPolicy"] = objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    yield from (kind for kind, selector in selectors.items() if not selector or not selector.items() <= labels.items())
    ports = {one["name"] for one in container(deployment)["ports"]}
    yield from (f"targetPort {one}" for one in objects["Service"]["spec"]["ports"] if one["targetPort"] not in ports)
    target = objects.get("HorizontalPodAutoscaler", {}).get("spec", {}).get("scaleTargetRef")
    if target and (target["kind"], target["name"]) != ("Deployment", deployment["metadata"]["name"]):
        yield "scaleTargetRef"


def faults(objects: dict[str, Manifest]) -> list[str]:
    """All of them."""
    return [
        *faults_of_settings(objects),
        *faults_of_probes(objects),
        *faults_of_ending(objects),
        *faults_of_rights(objects["Deployment"]),
        *faults_of_names(objects),
    ]


def test_the_manifests_are_right() -> None:
    """In themselves and for callfuse."""
    assert faults(manifests()) == []


@pytest.mark.parametrize(
    ("written", "other", "found"),
    [
        ("CALLFUSE_STORE", "CALLFUSE_SHOP", "CALLFUSE_SHOP"),
        ("/_callfuse/health", "/health", "startupProbe"),
        ("exclude=store", "exclude=shop", "readinessProbe: exclude=shop&exclude=upstream"),
        ("terminationGracePeriodSeconds: 75", "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds"),
        ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem"),
        ("containerPort: 8100", "containerPort: 8000", "containerPort"),
        ("targetPort: http", "targetPort: web", "targetPort {'name': 'http', 'port': 80, 'targetPort': 'web'}"),
        ("value: /etc/callfuse/callfuse.yaml", "value: /etc/callfuse.yaml", "CALLFUSE_CONFIG"),
    ],
)
def test_what_is_wrong_is_found(written: str, other: str, found: str) -> None:
    """So that the test above shows something."""
    text = "\n---\n".join(path.read_text(encoding="utf-8") for path in FILES)
    assert written in text
    assert found in faults(parse(text.replace(written, other)))


def test_the_image_is_of_this_version() -> None:
    """A tag that moves would mix versions, and be pulled at each start."""
    assert container(manifests()["Deployment"])["image"] == f"callfuse:{__version__}"


def test_the_memory_is_enough_for_the_bounds() -> None:
    """What exchanges, ledger, page and feed may keep fits into the limit."""
    objects = manifests()
    loop = config_of(objects).tool_call_loop
    limit = in_bytes(container(objects["Deployment"])["resources"]["limits"]["memory"])
    assert limit >= loop.max_total_bytes + loop.max_ledger_bytes + PAGE_AND_FEED + BESIDE_BOUNDS


def test_the_secret_is_the_one_of_the_page() -> None:
    """Its keys stand in the command that makes it."""
    wanted = [one["valueFrom"]["secretKeyRef"] for one in container(manifests()["Deployment"])["env"][1:]]
    page = document("docs/deploy.md")
    assert {one["name"] for one in wanted} == {"callfuse"}
    assert f"create secret generic {wanted[0]['name']} " in page
    assert [one["key"] for one in wanted if f"--from-literal={one['key']}=" not in page] == []


def test_the_user_of_the_image_is_a_number() -> None:
    """Which `runAsNonRoot` needs, where no `runAsUser` is given."""
    assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", document("Dockerfile"), re.MULTILINE)


def test_a_change_of_a_config_map_is_seen(tmp_path: Path) -> None:
    """kubelet writes a new folder and leads a symbolic link there; the file's own link stays as it is."""
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "callfuse.yaml").write_text("serve: {}")
    (tmp_path / "..data").symlink_to("1")
    path = tmp_path / "callfuse.yaml"
    path.symlink_to("..data/callfuse.yaml")
    before = file_version(str(path))
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").rename(tmp_path / "..data")
    assert file_version(str(path)) not in (None, before)


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_the_schema_of_kubernetes(version: str) -> None:
    """That of an old and of a new release, without any key that they do not know."""
    program = environment("kubernetes-validate==1.37.0").with_name("kubernetes-validate")
    command = [str(program), "--strict", "--kubernetes-version", version, *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
