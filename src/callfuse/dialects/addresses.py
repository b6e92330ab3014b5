"""Models that are named in a path: a path and another model's name enter, the path where that one is asked leaves.

Azure names its deployments there, Bedrock and Google (AI Studio, Vertex) their models; everybody else's stand in the
request's body.
"""

import re
from typing import Final

_NAMED: Final = (
    re.compile(r"/deployments/([^/]+)/"),
    re.compile(r"/model/(.+)/(?:converse|invoke)[\w-]*/?\Z"),
    re.compile(r"/models/([^/]+):\w+\Z"),
)
_METHOD: Final = re.compile(r":\w+\Z")
"""How paths of Google's end. What has one and names no model, names a tuned one or an endpoint."""


def path_to(path: str, model: str) -> str | None:
    """The path under which `model` is asked: the same where paths name none. None where it cannot be told."""
    for named in _NAMED:
        if found := named.search(path):
            return path[: found.start(1)] + model + path[found.end(1) :]
    return None if _METHOD.search(path) else path
