"""Where requests go, for scopes that uvicorn would not build."""

from typing import Any

import pytest

from callfuse.proxy.target import Upstream

UPSTREAM = Upstream.parse("https://vendor.test/base")


@pytest.mark.parametrize(
    ("scope", "url"),
    [
        ({"path": "/v1/x"}, "https://vendor.test/base/v1/x"),
        ({"path": "/a b/\u00e9%?#"}, "https://vendor.test/base/a%20b/%C3%A9%25%3F%23"),
        ({"path": "/x", "raw_path": None, "query_string": b"a=b"}, "https://vendor.test/base/x?a=b"),
        ({"path": "/x", "raw_path": b"/x?a=b", "query_string": b"a=b"}, "https://vendor.test/base/x?a=b"),
        ({"path": "/\u00e9", "raw_path": "/\u00e9".encode()}, "https://vendor.test/base/\u00e9"),
        ({"path": "/x", "raw_path": b"/\xe9", "query_string": b"\xff=1&b"}, "https://vendor.test/base/%E9?%FF=1&b"),
        ({"path": "/x#y", "raw_path": b"/x#y"}, "https://vendor.test/base/x%23y"),
        ({"path": "/x", "raw_path": b"/x", "query_string": b"a#b"}, "https://vendor.test/base/x?a%23b"),
        ({"path": "", "raw_path": b""}, "https://vendor.test/base/"),
        ({"path": "*", "raw_path": b"*"}, "https://vendor.test/base/*"),
        ({"path": "/m/x", "raw_path": b"/m/x", "root_path": "/m/"}, "https://vendor.test/base/x"),
        ({"path": "/x", "raw_path": b"/x", "root_path": "/m"}, "https://vendor.test/base/x"),
    ],
)
def test_the_url_of_a_scope(scope: dict[str, Any], url: str) -> None:
    """The path stays as it was written; where only the decoded one is known it is escaped."""
    assert str(UPSTREAM.url(scope)) == url


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("/api/v1/", "/v1/chat/completions", "/api/v1/chat/completions"),
        ("/v1", "/chat/completions", "/v1/chat/completions"),
        ("/v1", "/v1", "/v1/"),
        ("/v1", "/v1beta/models", "/v1/v1beta/models"),
        ("/v1beta", "/v1beta/models", "/v1beta/models"),
        ("/v1", "/v2/x", "/v1/v2/x"),
        ("/v1", "/v1/v1/x", "/v1/v1/x"),
        ("/base", "/base/x", "/base/base/x"),
        ("/vone", "/vone/x", "/vone/vone/x"),
    ],
)
def test_a_version_in_both_is_sent_once(base: str, path: str, url: str) -> None:
    """The upstream's base URL and the client's end in the same one."""
    upstream = Upstream.parse(f"https://vendor.test{base}")
    assert str(upstream.url({"path": path})) == f"https://vendor.test{url}"


@pytest.mark.parametrize("path", [b"@evil.test/", b".evil.test/", b":1@evil.test/", b"//evil.test/", b"\\evil.test"])
def test_no_path_changes_the_host(path: bytes) -> None:
    """Whatever a client asks for, the upstream is asked."""
    root = Upstream.parse("https://vendor.test")
    for scope in ({"path": "/", "raw_path": path}, {"path": "/", "raw_path": b"/m" + path, "root_path": "/m"}):
        assert root.url(scope).host == "vendor.test"


def test_credentials_are_kept_apart() -> None:
    """What is printed of an upstream holds no password."""
    upstream = Upstream.parse("http://me:s%40cret@vendor.test:8080/v1/")
    assert (upstream.origin, upstream.prefix, upstream.secure) == ("http://vendor.test:8080", "/v1", False)
    assert upstream.authorization == "Basic bWU6c0BjcmV0"
