"""The chart: values, schema and templates name the same things; rendered by Helm it makes what the manifests are."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from callfuse import __version__
from callfuse.config.environment import variables
from tests.deploy.files import DEPLOY, NO_SETTINGS, loaded, settings
from tests.deploy.test_kubernetes import Manifest, container, faults, parse
from tests.hosts.environments import asked_for, environment, run_json
from tests.project.sources import document

FOLDER = DEPLOY / "helm" / "callfuse"
VALUES: dict[str, Any] = loaded("helm/callfuse/values.yaml")
SCHEMA: dict[str, Any] = json.loads((FOLDER / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in sorted((FOLDER / "templates").rglob("*.*"))}
STORE = "redis://user:password@redis:6379/0"
TOKEN = {"secret": {"adminToken": "a-token-of-these-tests", "store": STORE}}
ALONE: dict[str, Any] = {"secret": {"adminToken": "a-token-of-these-tests"}, "replicas": 1}
"""One process needs no store."""
NO_STORE = "secret.store: 2 processes need a Redis or Valkey that they share"
EVERYTHING: dict[str, Any] = {
    **TOKEN,
    "settings": {
        "serve": {
            "drain_s": 0.5,
            "shutdown_timeout_s": 120.5,
            "routes": [{"path": "/a", "upstream": "https://a.example"}],
        }
    },
    "image": {"repository": "registry.example/callfuse", "tag": "test"},
    "imagePullSecrets": [{"name": "registry"}],
    "autoscaling": {"enabled": True, "targetInFlight": "500", "targetHeldBytes": "300Mi"},
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "preStopSeconds": 9,
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "certificate"},
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"ports": [{"protocol": "TCP", "port": 6379}]}],
    },
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "agents"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
EXISTING = {"secret": {"existing": "own"}, "podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "wrong: no token": ({"replicas": 1}, "secret.adminToken: give a token"),
    "wrong: two pods and no store": ({"secret": ALONE["secret"]}, NO_STORE),
    "wrong: two workers and no store": ({**ALONE, "settings": {"serve": {"workers": 2}}}, NO_STORE),
    "wrong: ten pods and no store": ({**ALONE, "autoscaling": {"enabled": True}}, NO_STORE.replace("2", "10")),
    "wrong: a short token": ({"secret": {"adminToken": "short"}}, "/secret/adminToken"),
    "wrong: another port": ({**TOKEN, "settings": {"serve": {"port": 80}}}, "/settings/serve/port"),
    "wrong: no page": ({**TOKEN, "settings": {"admin": {"enabled": False}}}, "/settings/admin/enabled"),
    "wrong: a store in the open": ({**TOKEN, "settings": {"store": "redis://a"}}, "/settings/store"),
    "wrong: a typing error": ({**TOKEN, "replica": 3}, "replica"),
    "wrong: an address of its own": (
        {**TOKEN, "env": [{"name": "CALLFUSE_SERVE_PORT", "value": "80"}]},
        "/env/0/name",
    ),
}


def leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The dotted names of all values, of a mapping that users fill its own only."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and described(path).get("additionalProperties") is False:
            yield from leaves(value, f"{path}.")
        else:
            yield path


def described(path: str) -> dict[str, Any]:
    """The schema of a value."""
    found = SCHEMA
    for name in path.split("."):
        found = found["properties"][name]
    return found


def parents(name: str, others: set[str]) -> list[str]:
    """Those of the others that are above a name."""
    return [one for one in others if name.startswith(f"{one}.")]


def used() -> set[str]:
    """The values that templates name."""
    return {name for text in TEMPLATES.values() for name in re.findall(r"\.Values\.([\w.]+\w)", text)}


def test_the_chart_is_of_this_version() -> None:
    """It installs the callfuse that it was released with."""
    chart = loaded("helm/callfuse/Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_values_are_used_and_described() -> None:
    """Each is in a template and in the schema, and templates name no other."""
    known = set(leaves(VALUES))
    groups = {name.partition(".")[0] for name in known}
    assert [name for name in used() if name not in known | groups and not parents(name, known)] == []
    in_use = {
        one for one in known if one in used() or parents(one, used()) or any(parents(two, {one}) for two in used())
    }
    assert known - in_use == set()
    jsonschema.validate(VALUES, SCHEMA)


def test_the_settings_are_callfuse_s() -> None:
    """Those that it comes with are read without an error, and those that it forbids are variables."""
    assert settings({}, json.dumps(VALUES["settings"])).serve.upstream
    forbidden = SCHEMA["properties"]["env"]["items"]["properties"]["name"]["not"]["enum"]
    assert set(forbidden) <= {*variables(), *NO_SETTINGS}


@pytest.mark.parametrize("name", [one for one in sorted(WRONG) if WRONG[one][1].startswith("/")])
def test_wrong_values_do_not_fit_the_schema(name: str) -> None:
    """They are refused before anything is installed."""
    values, _ = WRONG[name]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


@pytest.mark.parametrize("values", [TOKEN, ALONE, EVERYTHING, EXISTING])
def test_right_values_fit_it(values: dict[str, Any]) -> None:
    """All that is tried below."""
    jsonschema.validate(values, SCHEMA)


def test_the_values_of_the_page_fit_it() -> None:
    """Those that scale by callfuse's own figures, whose names the page gives to the adapter."""
    page = document("docs/fleet.md")
    blocks = re.findall(r"```yaml\n(# values\.yaml of callfuse\n.*?)```", page, re.DOTALL)
    [values] = map(yaml.safe_load, blocks)
    assert values["autoscaling"]["targetInFlight"]
    jsonschema.validate(values, SCHEMA)
    scaled = re.findall(r"metric: \{name: (\w+)\}", TEMPLATES["horizontalpodautoscaler.yaml"])
    assert sorted(scaled) == ["callfuse_held_bytes", "callfuse_in_flight"]
    assert "callfuse_(in_flight|held_bytes)" in page


@pytest.fixture(scope="module")
def rendered() -> dict[str, dict[str, str]]:
    """The texts of the templates by Helm, with each of the values."""
    python = environment("helm-python-sdk==0.2.2")
    cases = {"token": TOKEN, "alone": ALONE, "everything": EVERYTHING, "existing": EXISTING}
    cases |= {name: values for name, (values, _) in WRONG.items()}
    program = Path(__file__).with_name("render_chart.py")
    found = run_json(python, program, str(FOLDER), json.dumps(cases), timeout_s=120)
    assert found["lint"] == []
    texts: dict[str, dict[str, str]] = found["rendered"]
    return texts


def store_of(found: dict[str, Manifest]) -> dict[str, Any]:
    """Where the pods have the URL of the store from."""
    [one] = [one for one in container(found["Deployment"])["env"] if one["name"] == "CALLFUSE_STORE"]
    reference: dict[str, Any] = one["valueFrom"]["secretKeyRef"]
    return reference


def objects(texts: dict[str, str]) -> dict[str, Manifest]:
    """What is installed: no notes, and no test."""
    assert "" not in texts, texts
    return parse(
        "\n---\n".join(text for name, text in texts.items() if name.endswith(".yaml") and "/tests/" not in name)
    )


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_helm_makes_what_the_manifests_are(rendered: dict[str, dict[str, str]]) -> None:
    """The same checks hold, whatever is set; the time to end is that of the settings."""
    for name in ("token", "alone", "everything", "existing"):
        assert faults(objects(rendered[name])) == []
    assert container(objects(rendered["token"])["Deployment"])["image"] == f"callfuse:{__version__}"
    everything = objects(rendered["everything"])
    assert everything["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 9 + 1 + 121 + 10
    assert "replicas" not in everything["Deployment"]["spec"]
    assert set(everything) >= {"Ingress", "NetworkPolicy", "PodMonitor", "ServiceMonitor", "Secret"}
    scaling = everything["HorizontalPodAutoscaler"]["spec"]["metrics"]
    amounts = {one["pods"]["metric"]["name"]: one["pods"]["target"]["averageValue"] for one in scaling[1:]}
    assert amounts == {"callfuse_in_flight": "500", "callfuse_held_bytes": "300Mi"}
    assert store_of(everything)["optional"] is False
    assert store_of(objects(rendered["alone"]))["optional"] is True
    assert "https://callfuse.example.com" in rendered["everything"]["callfuse/templates/NOTES.txt"]
    existing = objects(rendered["existing"])
    assert "Secret" not in existing
    references = [one["valueFrom"]["secretKeyRef"]["name"] for one in container(existing["Deployment"])["env"][1:]]
    assert references == ["own", "own"]


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_helm_refuses_what_is_wrong(rendered: dict[str, dict[str, str]]) -> None:
    """With a word that says what."""
    for name, (_, said) in WRONG.items():
        assert said in rendered[name].get("", "nothing is wrong"), name


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_helm_makes_fits_the_schema_of_kubernetes(rendered: dict[str, dict[str, str]], tmp_path: Path) -> None:
    """All but the monitors, which are no part of Kubernetes."""
    program = environment("kubernetes-validate==1.37.0").with_name("kubernetes-validate")
    paths = []
    for case in ("token", "alone", "everything", "existing"):
        for name, text in rendered[case].items():
            if name.endswith(".yaml") and text.strip() and "monitoring.coreos.com" not in text:
                paths.append(tmp_path / f"{case}-{name.replace('/', '-')}")
                paths[-1].write_text(text)
    done = subprocess.run([program, "--strict", *paths], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
