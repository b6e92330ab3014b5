"""The address of a request that goes to another model than the client's."""

from urllib.parse import quote

from callfuse.asgi.types import Scope
from callfuse.dialects.addresses import path_to


def addressed(scope: Scope, model: str, *, in_body: bool) -> bool:
    """Have a scope, a copy, lead to `model` where its path names one. False where neither that nor the body does."""
    path = path_to(scope["path"], model)
    if path is None or (path == scope["path"] and not in_body):
        return False
    scope["path"] = path
    if raw := scope.get("raw_path"):
        came, mark, query = raw.decode("latin-1").partition("?")
        there = path_to(came, quote(model, safe=":@"))
        scope["raw_path"] = f"{came if there is None else there}{mark}{query}".encode("latin-1")
    return True
