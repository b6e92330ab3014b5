"""The dashboard and the alert rules name metrics and labels that the program exports, and values that labels have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from callfuse.observe import labels
from callfuse.observe.metrics import COUNTERS, HISTOGRAMS
from callfuse.observe.prometheus import PREFIX, Metrics
from tests.observe.test_prometheus import made_up, samples

FOLDER = Path(__file__).parents[2] / "examples" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds to whatever it scrapes."""


def exported() -> dict[str, set[str]]:
    """The names of the labels of each sample that the program exports."""
    metrics = Metrics()
    for event in made_up(0):
        metrics.take(event)
    found: dict[str, set[str]] = {}
    for sample in samples(metrics):
        name, _, shown = sample.rstrip("}").partition("{")
        found.setdefault(name, set()).update(re.findall(r"(\w+)=", shown))
    return found


EXPORTED = exported()
ALLOWED = {
    f"{PREFIX}{name}_total": {label.name: label.values for label in counted.labels}
    for name, counted in COUNTERS.items()
} | {
    f"{PREFIX}{name}_seconds{end}": {label.name: label.values for label in timed.labels}
    for name, timed in HISTOGRAMS.items()
    for end in ("_bucket", "_sum", "_count")
}


def expressions() -> Iterator[str]:
    """Every expression of both files."""
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query")
    for group in ALERTS["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def wrong(expression: str) -> list[str]:
    """What of an expression the program does not export."""
    found = []
    names = re.findall(rf"\b{PREFIX}\w+", expression)
    known = OF_PROMETHEUS.union(*(EXPORTED.get(name, set()) for name in names))
    found += [name for name in names if name not in EXPORTED]
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        found += [label for label in re.split(r",\s*", grouped) if label not in known]
    for name, matchers in re.findall(rf"({PREFIX}\w+)\{{([^}}]*)\}}", expression):
        for label, values in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers):
            if label in OF_PROMETHEUS:
                continue
            allowed = ALLOWED.get(name, {}).get(label, ())
            known_values = {*(("/",) if allowed is None else allowed), labels.OTHER}
            found += [
                f"{label}={value}"
                for value in values.split("|")
                if not any(re.fullmatch(value, one) for one in known_values)
            ]
    if expression.count("(") != expression.count(")") or not names:
        found.append(expression)
    return found


@pytest.mark.parametrize("expression", [*expressions()])
def test_what_is_asked_for_is_exported(expression: str) -> None:
    """Names of metrics and of labels, and each value that a label is compared with."""
    assert wrong(expression) == []


@pytest.mark.parametrize(
    "expression",
    [
        "sum(callfuse_findings)",
        "sum by (tool) (callfuse_findings_total)",
        'callfuse_findings_total{action="stop"}',
        "sum(callfuse_findings_total",
        "up == 0",
    ],
)
def test_what_is_not_exported_is_found(expression: str) -> None:
    """A name, a label, a value, and what cannot be parsed."""
    assert wrong(expression)


def test_every_metric_is_shown() -> None:
    """On the dashboard, so that nobody has to look for what else there is."""
    shown = set(re.findall(rf"\b{PREFIX}\w+", json.dumps([panel["targets"] for panel in DASHBOARD["panels"]])))
    parts = {name for name in EXPORTED if name.endswith(("_sum", "_count"))}
    assert shown - parts == EXPORTED.keys() - parts


@pytest.mark.parametrize(
    "of",
    [
        *("rising", "fails open", "not guarded", "store down", "fuse blown", "holds long"),
        *("upstream errors", "no traffic", "worker died", "adds time"),
    ],
)
def test_there_is_an_alert(of: str) -> None:
    """With a severity, and words for who gets it."""
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    (rule,) = [one for one in rules if of.replace(" ", "") in one["alert"].lower()]
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description"}


def test_panels_do_not_overlap() -> None:
    """Each has an id and a place of its own."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
