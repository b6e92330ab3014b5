"""Prometheus' own tool takes alert rules, dashboard and configuration, and each alert fires when it should."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.observe.test_grafana import ALERTS, DASHBOARD, FOLDER

PROJECT = Path(__file__).parents[2]
TESTS = Path(__file__).with_name("alerts_test.yaml")
VARIABLES = {"$__rate_interval": "5m", "$__range": "1d", "$job": ".*", "$instance": ".*"}
PROGRAM = shutil.which("promtool") or ""

needs_promtool = pytest.mark.skipif(not PROGRAM, reason="no promtool here; on Debian: apt-get install prometheus")


def promtool(*arguments: str | Path) -> str:
    """What it prints. AssertionError if it finds something."""
    ran = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120, check=False)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    return said


@needs_promtool
def test_the_rules_are_rules() -> None:
    """Names of functions, labels, templates: all of it parses."""
    count = sum(len(group["rules"]) for group in ALERTS["groups"])
    assert f"SUCCESS: {count} rules found" in promtool("check", "rules", FOLDER / "alerts.yaml")


@needs_promtool
def test_each_alert_fires_when_it_should() -> None:
    """On made-up series, with its labels and its words."""
    assert "SUCCESS" in promtool("test", "rules", TESTS)


@needs_promtool
def test_a_rule_that_is_wrong_fails(tmp_path: Path) -> None:
    """A threshold is moved."""
    rules, tests = tmp_path / "alerts.yaml", tmp_path / "tests.yaml"
    rules.write_text((FOLDER / "alerts.yaml").read_text().replace("> 0.1 * sum by", "> 0.5 * sum by"))
    tests.write_text(TESTS.read_text().replace("../../examples/grafana/alerts.yaml", str(rules)))
    with pytest.raises(AssertionError, match="CallfuseUpstreamErrors"):
        promtool("test", "rules", tests)


@needs_promtool
def test_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    """All of them parse, with values for Grafana's variables."""
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    plain = [re.sub(r"\$\w+", lambda found: VARIABLES[found[0]], one) for one in asked]
    rules = [{"record": f"callfuse:{number}", "expr": one} for number, one in enumerate(plain)]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", file)


@needs_promtool
def test_the_configuration_of_the_compose_file(tmp_path: Path) -> None:
    """With the token and the rules where the containers have them."""
    token, config = tmp_path / "token", tmp_path / "prometheus.yml"
    token.write_text("a token")
    given = (PROJECT / "deploy/compose/prometheus/prometheus.yml").read_text()
    config.write_text(
        given.replace("/run/secrets/callfuse-admin-token", str(token)).replace("/etc/prometheus-rules", str(FOLDER))
    )
    assert "SUCCESS: 1 rule files found" in promtool("check", "config", config)


def test_each_alert_is_tested() -> None:
    """It fires in one of the tests."""
    tests = [one for group in yaml.safe_load(TESTS.read_text())["tests"] for one in group["alert_rule_test"]]
    firing = {one["alertname"] for one in tests if one.get("exp_alerts")}
    assert {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]} == firing
