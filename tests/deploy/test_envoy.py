"""The samples for Envoy and what is built on it: Envoy takes its own, and the others say the same."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from callfuse.cli.app import app
from tests.deploy.files import DEPLOY, least_grace_s, loaded, settings, unknown
from tests.envoy.envoys import filter_settings, full_duplex, manager, needs_envoy, program, sample

FOLDER = DEPLOY / "envoy"
PORT = 8102
"""Where `callfuse ext-proc` listens by default."""


def documents(name: str) -> dict[str, Any]:
    """The documents of a file by their kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / name).read_text())}


def checked(file: Path) -> tuple[int, str]:
    """Exit code and output of Envoy for a configuration."""
    path = program()
    assert path is not None
    command = [path, "--mode", "validate", "-c", str(file), "-l", "error"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@needs_envoy
def test_envoy_takes_its_sample(tmp_path: Path) -> None:
    """As it stands, and with requests in full duplex."""
    assert checked(FOLDER / "envoy.yaml")[0] == 0
    other = tmp_path / "envoy.yaml"
    other.write_text(yaml.safe_dump(sample(10000, f"127.0.0.1:{PORT}", "127.0.0.1:1", full_duplex)))
    assert checked(other)[0] == 0


@pytest.mark.slow
@needs_envoy
def test_envoy_refuses_what_is_wrong(tmp_path: Path) -> None:
    """A mode that needs trailers, without them."""
    wrong = tmp_path / "envoy.yaml"
    text = (FOLDER / "envoy.yaml").read_text()
    wrong.write_text(text.replace("response_trailer_mode: SEND", "response_trailer_mode: SKIP"))
    code, said = checked(wrong)
    assert code != 0
    assert "response_trailer_mode" in said


def test_istio_has_the_same_filter() -> None:
    """All but the name of the cluster, which Istio gives; and the Service leads to the port."""
    found = documents("istio.yaml")
    (patch, *_) = found["EnvoyFilter"]["spec"]["configPatches"]
    theirs, ours = patch["patch"]["value"]["typed_config"], filter_settings(loaded("envoy/envoy.yaml"))
    service = found["Service"]
    name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local"
    assert theirs.pop("grpc_service") == {"envoy_grpc": {"cluster_name": f"outbound|{PORT}||{name}"}}
    del ours["grpc_service"]
    assert theirs == ours
    assert service["spec"]["ports"][0]["port"] == PORT


@pytest.mark.slow
@needs_envoy
def test_envoy_takes_istio_s_patches(tmp_path: Path) -> None:
    """In the places of its own sample where Istio puts them."""
    processor, limit, timeout = (
        one["patch"]["value"] for one in documents("istio.yaml")["EnvoyFilter"]["spec"]["configPatches"]
    )
    config = loaded("envoy/envoy.yaml")
    resources = config["static_resources"]
    manager(config)["http_filters"][0] = processor
    resources["listeners"][0] |= limit
    manager(config)["route_config"]["virtual_hosts"][0]["routes"][0]["route"] |= timeout["route"]
    cluster = processor["typed_config"]["grpc_service"]["envoy_grpc"]["cluster_name"]
    resources["clusters"][0] |= {"name": cluster}
    resources["clusters"][0]["load_assignment"]["cluster_name"] = cluster
    file = tmp_path / "envoy.yaml"
    file.write_text(yaml.safe_dump(config))
    assert checked(file)[0] == 0, checked(file)[1]


def test_envoy_gateway_says_the_same() -> None:
    """In its own words; but its schema allows `failOpen` only where no body is streamed in full duplex."""
    found = documents("envoy-gateway.yaml")
    (processor,) = found["EnvoyExtensionPolicy"]["spec"]["extProc"]
    ours = filter_settings(loaded("envoy/envoy.yaml"))
    assert (processor["failOpen"], processor["messageTimeout"]) == (False, ours["message_timeout"])
    modes = processor["processingMode"]
    assert (modes["request"]["body"], modes["response"]["body"]) == ("Buffered", "FullDuplexStreamed")
    assert processor["backendRefs"] == [{"name": found["Service"]["metadata"]["name"], "port": PORT}]


def test_agentgateway_fails_open_to_the_same_port() -> None:
    """Its own default streams both bodies."""
    (route,) = loaded("envoy/agentgateway.yaml")["routes"]
    processor = route["policies"]["extProc"]
    assert (processor["host"], processor["failureMode"]) == (f"127.0.0.1:{PORT}", "failOpen")
    assert set(processor["processingOptions"].values()) == {"fullDuplexStreamed"}


def test_the_deployment_runs_the_command() -> None:
    """Its options and variables are known, its probes ask where it listens, and Kubernetes waits until it has ended."""
    spec = loaded("envoy/callfuse.yaml")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    program_name, command, *options = container["command"]
    assert (program_name, command, options) == (
        "callfuse",
        "ext-proc",
        ["--listen", f"0.0.0.0:{PORT}", "--host", "0.0.0.0"],
    )
    assert command in {one.name for one in app.registered_commands}
    assert [one["containerPort"] for one in container["ports"]] == [PORT, settings({}).serve.port]
    env = {one["name"]: one.get("value", "from-a-secret-0123456789") for one in container["env"]}
    assert unknown(env) == set()
    assert settings(env).serve.upstream == "https://api.openai.com"
    assert container["readinessProbe"] == container["livenessProbe"] == {"grpc": {"port": PORT}}
    assert spec["terminationGracePeriodSeconds"] >= least_grace_s(settings({}))
