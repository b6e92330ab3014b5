"""Reads and replaces the model's name in a request path.

Azure (deployments), Bedrock and Google (AI Studio, Vertex) name the model in the path; all others in the body.
"""

import re
from typing import Final

_NAMED: Final = (
    re.compile(r"/deployments/([^/]+)/"),
    re.compile(r"\A(?:(?!/model/).)*+/model/(.+)/(?:converse|invoke)[\w-]*+/?\Z", re.DOTALL),
    re.compile(r"/models/([^/]+):\w+/?\Z"),
)
_METHOD: Final = re.compile(r":\w+/?\Z")
"""The end of Google's paths. One without a model in it names a tuned model or an endpoint."""

_PUBLISHER: Final = re.compile(r"/publishers/([^/]+)/models/")


def path_to(path: str, model: str) -> str | None:
    """Return the path for `model`: unchanged if it names no model; None if what it names cannot be replaced."""
    for named in _NAMED:
        if found := named.search(path):
            return path[: found.start(1)] + model + path[found.end(1) :]
    return None if _METHOD.search(path) else path


def model_in(target: str) -> str:
    """Return the model that a path names (with or without a query); empty if the path names no model."""
    path = target.partition("?")[0]
    return next((found[1] for named in _NAMED if (found := named.search(path))), "")


def publisher_in(path: str) -> str:
    """Return the publisher of the model that a Vertex path names, such as `mistralai`; empty if it names none."""
    found = _PUBLISHER.search(path)
    return found[1] if found else ""
