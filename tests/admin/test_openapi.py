"""The description of the endpoints for programs is served, and true: every route is in it, and nothing else."""

import json
import re
from typing import Any

from starlette.routing import Route

from callfuse.admin.allow import WHAT
from callfuse.findings.query import FORMATS, NAMES, RANGES
from callfuse.observe.events import FEEDBACK
from tests.admin.asking import Guarded
from tests.project.sources import document

ONLY_HERE = {"/guardrail/beta/litellm_basic_guardrail_api"}
"""What is the same endpoint under the path that LiteLLM makes of its base URL."""


async def described() -> dict[str, Any]:
    """The file, as it is served."""
    exchange = await Guarded().get("openapi.json")
    assert exchange.header(b"content-type") == b"application/json"
    found: dict[str, Any] = json.loads(exchange.body)
    return found


async def test_each_route_is_described() -> None:
    """With its methods."""
    routes = [one for one in Guarded().admin._app.routes if isinstance(one, Route)]
    there = {one.path: {name.lower() for name in one.methods or ()} - {"head"} for one in routes}
    told = {path: set(operations) for path, operations in (await described())["paths"].items()}
    assert {path: methods for path, methods in there.items() if path not in ONLY_HERE} == told


async def test_each_endpoint_of_the_page_is_described() -> None:
    """Those of the table in docs/admin.md."""
    names = re.findall(r"^\| `([\w./-]+)` \|.*\| (?:open|token[^|]*) \|$", document("docs/admin.md"), re.MULTILINE)
    paths = (await described())["paths"]
    assert len(names) > 15
    assert [name for name in names if f"/{name.strip('./')}" not in paths] == []


async def test_values_are_those_of_the_code() -> None:
    """Parameters of `findings`, and what `feedback` and `allow` take."""
    told = await described()
    parameters = {one["name"]: one["schema"] for one in told["paths"]["/findings"]["get"]["parameters"]}
    assert set(parameters) == set(NAMES)
    assert parameters["range"]["enum"] == list(RANGES)
    assert parameters["format"]["enum"] == list(FORMATS)
    schemas = told["components"]["schemas"]
    assert schemas["Feedback"]["properties"]["kind"]["enum"] == list(FEEDBACK)
    assert schemas["Allow"]["properties"]["what"]["enum"] == list(WHAT)


async def test_an_answer_has_what_is_described() -> None:
    """The keys of `findings`, `health` and `sessions`."""
    schemas = (await described())["components"]["schemas"]
    guarded = Guarded()
    for below, name in (("findings", "Findings"), ("health", "Health")):
        found = await guarded.told(below)
        assert set(found) == set(schemas[name]["properties"])
    await guarded.type("!/set(tool-loop-mode=warn)", "one")
    (session,) = await guarded.told("sessions")
    assert set(session) <= set(schemas["Sessions"]["items"]["properties"])


async def test_every_reference_is_there() -> None:
    """Within the file."""
    told = await described()
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(told)):
        place: Any = told
        for name in reference.split("/"):
            place = place[name]
        assert place
