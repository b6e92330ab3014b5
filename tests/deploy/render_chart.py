"""Renders a chart by Helm's own code, for the tests, in an environment that has it.

In: the chart's folder, and values by name as JSON. Out, as JSON: what the linter says, and by that name the text of
each template, or what is wrong with the values.
"""

import json
import sys
from importlib import import_module
from typing import Any

helm: Any = import_module("helm_python")
RELEASE = "guard"


def render(chart: Any, values: dict[str, Any]) -> dict[str, str]:
    """The text of each template, or the error under an empty name."""
    try:
        rendered: dict[str, str] = chart.render(values, name=RELEASE, namespace="agents")
    except helm.HelmError as error:
        return {"": str(error)}
    return rendered


def main(folder: str, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Lint the chart with the values of each case that is not to fail, and render it with all."""
    lint = [helm.lint(folder, values, strict=True) for name, values in cases.items() if "wrong" not in name]
    said = [message for one in lint for message in one["messages"] if message["severity"] > 1]
    with helm.Chart.load(folder) as chart:
        return {"lint": said, "rendered": {name: render(chart, values) for name, values in cases.items()}}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
