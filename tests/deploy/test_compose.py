"""compose.yaml and what it mounts: names, ports and paths agree with callfuse and with each other."""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from callfuse.config import Config
from tests.cli.processes import CLEAN
from tests.deploy.files import DEPLOY, debian_program, least_grace_s, loaded, settings, unknown
from tests.hosts.environments import asked_for, environment
from tests.hosts.mounting import free_port
from tests.observe.test_grafana import DASHBOARD
from tests.project.sources import PROJECT, document
from tests.support.redis import RedisServer, program

FOLDER = DEPLOY / "compose"
COMPOSE: dict[str, Any] = loaded("compose/compose.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]
GUARD: dict[str, Any] = SERVICES["callfuse"]
PROMETHEUS: dict[str, Any] = loaded("compose/prometheus/prometheus.yml")
START_S = 30


def guarded() -> Config:
    """What callfuse is set to there."""
    return settings(GUARD["environment"], (FOLDER / "config/callfuse.yaml").read_text())


def mounts(service: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Files and folders of this project that a service sees, and where."""
    for volume in service.get("volumes", ()):
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            yield (FOLDER / source).resolve(), target


def seen(service: dict[str, Any], path: str) -> Path:
    """The file of the project that a service sees at a path."""
    [(source, target)] = [(source, target) for source, target in mounts(service) if Path(path).is_relative_to(target)]
    return source / Path(path).relative_to(target)


def test_settings_exist_and_are_right() -> None:
    """Variables and file are read as callfuse reads them, and there is something to guard."""
    assert unknown(GUARD["environment"]) == set()
    config = guarded()
    assert config.serve.upstream
    assert config.admin.enabled
    assert seen(GUARD, GUARD["environment"]["CALLFUSE_CONFIG"]).is_file()


def test_the_store_is_the_one_that_is_started() -> None:
    """By its name in this network."""
    found = re.fullmatch(r"redis://(\w+):6379/0", guarded().store)
    assert found
    assert found[1] in SERVICES
    assert found[1] in GUARD["depends_on"]
    assert "healthcheck" in SERVICES[found[1]]


@pytest.mark.slow
def test_the_store_starts_with_its_options() -> None:
    """A real server takes them, and forgets the oldest when it is full."""
    if program() is None:
        pytest.skip("there is no server of Redis or Valkey here")
    server = RedisServer(*SERVICES["store"]["command"][1:])
    try:
        server.start()
        found = [server.ask("CONFIG", "GET", name)[1] for name in ("maxmemory-policy", "maxmemory", "save")]
        assert found == [b"allkeys-lru", b"268435456", b""]
    finally:
        server.end()


def test_mounted_files_exist() -> None:
    """All that is mounted from here is here, and is read-only."""
    paths = [path for service in SERVICES.values() for path, _ in mounts(service)]
    assert paths
    assert [path for path in paths if not path.exists()] == []
    volumes = [volume for service in SERVICES.values() for volume in service.get("volumes", ())]
    assert [one for one in volumes if one.startswith(".") and not one.endswith(":ro")] == []
    assert {one.partition(":")[0] for one in volumes if one[0] != "."} == set(COMPOSE["volumes"])


def test_no_secret_is_in_the_file() -> None:
    """Each is a file of its own that git leaves alone, and that the page tells to make. A secret made of a variable
    would not do: compose cannot write it into a container whose root is read-only."""
    page = document("docs/deploy.md")
    for service in SERVICES.values():
        for name, text in service.get("environment", {}).items():
            if re.search("TOKEN|PASSWORD|KEY|SECRET", name):
                assert name.endswith("_FILE")
                assert text.removeprefix("/run/secrets/") in service["secrets"]
    for secret in COMPOSE["secrets"].values():
        folder, name = secret["file"].removeprefix("./").split("/")
        assert f"deploy/compose/{folder}/" in document(".gitignore").splitlines()
        assert re.search(rf"^openssl rand -hex \d+ > {folder}/{name}$", page, re.MULTILINE)


def test_only_this_machine_reaches_it() -> None:
    """Ports are those that callfuse and Grafana listen on, on the loopback."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports == ["127.0.0.1:8100:8100", "127.0.0.1:3000:3000"]
    assert guarded().serve.port == 8100
    assert "EXPOSE 8100\n" in document("Dockerfile")


def test_it_has_time_to_end() -> None:
    """Docker's own ten seconds would cut streams."""
    assert float(GUARD["stop_grace_period"].removesuffix("s")) > least_grace_s(guarded())


def test_prometheus_asks_what_callfuse_has() -> None:
    """The path of the metrics, the port, the token, the alert rules."""
    [job] = PROMETHEUS["scrape_configs"]
    config = guarded()
    assert job["metrics_path"] == f"{config.admin.path}/metrics"
    assert job["static_configs"] == [{"targets": [f"callfuse:{config.serve.port}"]}]
    [secret] = SERVICES["prometheus"]["secrets"]
    assert job["authorization"] == {"type": "Bearer", "credentials_file": f"/run/secrets/{secret}"}
    assert GUARD["environment"]["CALLFUSE_ADMIN_TOKEN_FILE"] == f"/run/secrets/{secret}"
    [pattern] = PROMETHEUS["rule_files"]
    rules = seen(SERVICES["prometheus"], pattern.replace("*", "alerts"))
    assert yaml.safe_load(rules.read_text())["groups"]
    assert seen(SERVICES["prometheus"], "/etc/prometheus/prometheus.yml").is_file()


def test_grafana_has_the_dashboard() -> None:
    """Provisioned where Grafana looks, with a data source that leads to Prometheus."""
    grafana = SERVICES["grafana"]
    [source] = loaded("compose/grafana/datasources/prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["type"] == DASHBOARD["templating"]["list"][0]["query"]
    assert source["isDefault"]
    [provider] = loaded("compose/grafana/dashboards/callfuse.yaml")["providers"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert json.loads(seen(grafana, str(home)).read_text()) == DASHBOARD
    for kind in ("datasources", "dashboards"):
        assert f"./grafana/{kind}:/etc/grafana/provisioning/{kind}:ro" in grafana["volumes"]


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_schema_of_compose() -> None:
    """As its specification has it."""
    checker = environment("check-jsonschema==0.39.0").with_name("check-jsonschema")
    command = [str(checker), "--builtin-schema", "vendor.compose-spec", str(FOLDER / "compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@contextmanager
def running(command: list[str], **env: str) -> Iterator[None]:
    """A process for the length of the block."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env={**CLEAN, **env}, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(START_S)


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_prometheus_takes_it(tmp_path: Path) -> None:
    """Configuration and rules are right, and it scrapes a running callfuse with the token."""
    token = "a-token-of-these-tests"
    guard, own = free_port(), free_port()
    text = (FOLDER / "prometheus/prometheus.yml").read_text()
    rules = PROJECT / "examples/grafana/alerts.yaml"
    for written, here in {
        "callfuse:8100": f"127.0.0.1:{guard}",
        "/run/secrets/callfuse-admin-token": str(tmp_path / "token"),
        "/etc/prometheus-rules/*.yaml": str(rules),
        "scrape_interval: 15s": "scrape_interval: 1s",
    }.items():
        assert written in text
        text = text.replace(written, here)
    (tmp_path / "token").write_text(f"{token}\n")
    path = tmp_path / "prometheus.yml"
    path.write_text(text)
    promtool = debian_program("prometheus", "usr/bin/promtool")
    subprocess.run([promtool, "check", "config", path], timeout=60, check=True)
    subprocess.run([promtool, "check", "rules", rules], timeout=60, check=True)
    prometheus = [debian_program("prometheus", "usr/bin/prometheus"), f"--config.file={path}"]
    prometheus += [f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{own}"]
    serve = [sys.executable, "-m", "callfuse", "serve", "--upstream", "http://127.0.0.1:9", "--port", str(guard)]
    with running(serve, CALLFUSE_ADMIN_TOKEN_FILE=str(tmp_path / "token")), running(prometheus):
        assert is_scraped(f"http://127.0.0.1:{own}/api/v1/query?query=callfuse_build_info")


def is_scraped(url: str) -> bool:
    """Whether Prometheus has what callfuse tells of itself, after some seconds at most."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            with urlopen(url, timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:
            found = []
        if found:
            return bool(found[0]["metric"]["job"] == "callfuse")
        time.sleep(0.5)
    return False
