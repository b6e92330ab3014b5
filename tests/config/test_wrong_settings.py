"""What is wrong is named with its key, its value, its source and what is right; all of it at once."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from callfuse.asgi.overrides import KEYS as HEADERS
from callfuse.commands.run import KEYS
from callfuse.config import load_config
from callfuse.config.layers import FOREIGN_KEYS
from callfuse.config.model import dotted_name, keys, leaves
from callfuse.config.serve import ServeSettings
from callfuse.config.wording import describe_allowed
from callfuse.errors import ConfigError
from callfuse.policy.sections import COMMAND_KEYS
from callfuse.stores.address import STORE_HINT

RUNGS = "observe, warn, steer, force_text, escalate, block"
MODES_RIGHT = (
    "use one of observe, warn, block, break, terminate, chance_then_block, chance_then_break, chance, graduated, "
    f"unattended, or a list of rungs ({RUNGS})"
)
PLACEHOLDERS_RIGHT = "use {tool_name}, {arguments}, {count}, {max_repeats}, {window}, {previous_result}, {model}"
REPEATS_RIGHT = "use 0 (off) or a whole number from 2"
PATH_RIGHT = "use / and names without ? # % or white space, as in /anthropic or /team/anthropic"
ADMIN_PATH_RIGHT = "use / and names of letters, digits, - . _ and ~, as in /_callfuse or /internal/callfuse"
UPSTREAM_RIGHT = "use http:// or https:// with a host, as in https://api.openai.com"
NO_SWITCH = "use a number (YAML reads on, off, yes and no as true and false)"


def complaint(source: Any = None, **env: str) -> str:
    """The message that the settings raise."""
    with pytest.raises(ConfigError) as caught:
        load_config(source, env)
    return str(caught.value)


LOOP = [
    ("enabled", "maybe", "'maybe'", "use true or false"),
    ("mode", "blok", "'blok'", MODES_RIGHT),
    ("mode", False, "false", f"{MODES_RIGHT}; `enabled: false` turns callfuse off"),
    ("mode", ["warn", "stop"], "['warn', 'stop']", f"'stop' is not a rung; use {RUNGS}"),
    ("mode", [], "[]", MODES_RIGHT),
    ("max_repeats", 1, "1", REPEATS_RIGHT),
    ("max_repeats", -3, "-3", REPEATS_RIGHT),
    ("max_repeats", 2.5, "2.5", REPEATS_RIGHT),
    ("max_repeats", "three", "'three'", REPEATS_RIGHT),
    ("max_repeats", True, "true", REPEATS_RIGHT),
    ("max_repeats", None, "null", REPEATS_RIGHT),
    ("max_repeats_changing", 1, "1", REPEATS_RIGHT),
    ("ttl_seconds", 0, "0", "use a number above 0"),
    ("ttl_seconds", float("inf"), "inf", "use a number above 0"),
    ("ttl_seconds", float("nan"), "nan", "use a number above 0"),
    ("heartbeat_s", True, "true", NO_SWITCH),
    ("similarity_threshold", True, "true", NO_SWITCH),
    ("similarity_threshold", 2, "2", "use a number above 0 to 1"),
    ("holdout", 10, "10", "use a number from 0 to 1"),
    ("holdout", -0.1, "-0.1", "use a number from 0 to 1"),
    ("window", 1, "1", "use a whole number from 2 to 100"),
    ("window", 101, "101", "use a whole number from 2 to 100"),
    ("window", True, "true", NO_SWITCH),
    ("max_held_bytes", 0, "0", "use a whole number above 0"),
    (
        "credential_headers",
        ["x user"],
        "['x user']",
        "'x user' is not the name of a client's header; use names as in x-auth",
    ),
    ("max_rounds", 9, "9", "use a whole number from 10"),
    ("finish_reason", "halt", "'halt'", "use one of stop, error"),
    ("usage", {"input": "last"}, "a mapping", "use one of last, sum"),
    ("error_messages.block", "Stop {nope}", "'Stop {nope}'", f"{{nope}} is not a placeholder; {PLACEHOLDERS_RIGHT}"),
    ("error_messages.block", "{}", "'{}'", f"{{}} is not a placeholder; {PLACEHOLDERS_RIGHT}"),
    ("error_messages.block", "{count!r:>4}", "'{count!r:>4}'", "{count!r:>4} is not a placeholder; "),
    (
        "error_messages.warning",
        "a { b",
        "'a { b'",
        "; write {{ and }} for braces, and use the placeholders {tool_name}",
    ),
    ("error_messages.guidance", "", "''", "use text that is not empty"),
    ("commands.prefix", "", "''", "use text without white space, ` and >, as in !/"),
    ("commands.prefix", "! ", "'! '", "use text without white space, ` and >, as in !/"),
    ("commands.prefix", ">>", "'>>'", "use text without white space, ` and >, as in !/"),
    ("commands.prefix", "`!", "'`!'", "use text without white space, ` and >, as in !/"),
    ("commands.enabled", 3, "3", "use true or false"),
    (
        "commands.keys",
        ["tool_loop_mode", "tool-lop"],
        "['tool_loop_mode', 'tool-lop']",
        "'tool-lop' is not a key of a command; did you mean tool-loop-detection?",
    ),
    (
        "commands.locked",
        ["color"],
        "['color']",
        "'color' is not a key of a command; use tool-loop-detection, tool-loop-max",
    ),
    ("commands.locked", "tool-loop-mode", "'tool-loop-mode'", "use a list of texts"),
    ("commands.locked", [3], "[3]", "use a list of texts"),
    ("commands", "!/", "'!/'", "use a mapping with the keys enabled, prefix, keys, locked, or true or false"),
    ("error_messages", "Stop!", "'Stop!'", "use a mapping with the keys block, warning, guidance, blown"),
]
SERVE = [
    ("upstream", "api.openai.com", "'api.openai.com'", UPSTREAM_RIGHT),
    ("upstream", "localhost:8000", "'localhost:8000'", UPSTREAM_RIGHT),
    ("upstream", "ftp://h", "'ftp://h'", UPSTREAM_RIGHT),
    ("upstream", "https://", "'https://'", UPSTREAM_RIGHT),
    ("upstream", "http://[::1", "'http://[::1'", f"it is not a URL; {UPSTREAM_RIGHT}"),
    ("upstream", "http://h:99999", "'http://h:99999'", f"its port is not a number from 1 to 65535; {UPSTREAM_RIGHT}"),
    ("upstream", "http://a b", "'http://a b'", "it contains white space or control characters; "),
    ("upstream", "https://h/?key=k3y", "'https://h/?***'", "leave out the query (?) and the fragment (#)"),
    ("upstream", 8000, "8000", "use text that is not empty"),
    ("routes", 3, "3", "use a list of mappings (path, upstream, backend)"),
    ("routes", {"path": "/a"}, "a mapping", "use a list of mappings (path, upstream, backend)"),
    ("routes", "/a", "'/a'", "use PATH=URL, as in /anthropic=https://api.anthropic.com, or a list of mappings"),
    (
        "routes",
        ["/a=http://h", "/a/=http://g"],
        "['/a=http://h', '/a/=http://g']",
        "the path /a is given twice; keep one",
    ),
    ("port", 65536, "65536", "use a whole number from 0 to 65535"),
    ("workers", 0, "0", "use a whole number from 1"),
    ("host", "", "''", "use text that is not empty"),
    (
        "hosts",
        ["http://h:1"],
        "['http://h:1']",
        "'http://h:1' is not the name of a host; use names without scheme and port, as in callfuse.internal, or *",
    ),
    ("log_level", "loud", "'loud'", "use one of debug, info, warning, error"),
    ("log_format", "xml", "'xml'", "use one of text, json"),
    ("max_connections", -1, "-1", "use a whole number from 0"),
    ("shutdown_timeout_s", 0, "0", "use a number above 0"),
    ("drain_s", -1, "-1", "use a number from 0"),
    ("tls_certificate", "", "''", "use text that is not empty"),
    ("tls_key", "k.pem", "'k.pem'", "set serve.tls_certificate, too"),
]
ADMIN = [
    ("enabled", "maybe", "'maybe'", "use true or false"),
    ("path", "callfuse", "'callfuse'", ADMIN_PATH_RIGHT),
    ("path", "/", "'/'", ADMIN_PATH_RIGHT),
    ("path", "", "''", ADMIN_PATH_RIGHT),
    ("path", "//h", "'//h'", ADMIN_PATH_RIGHT),
    ("path", "/a/../b", "'/a/../b'", ADMIN_PATH_RIGHT),
    ("path", "/a?b", "'/a?b'", ADMIN_PATH_RIGHT),
    ("path", "/a%2f", "'/a%2f'", ADMIN_PATH_RIGHT),
    ("path", "/a;b", "'/a;b'", ADMIN_PATH_RIGHT),
    ("path", "/a\nb", "'/a\\nb'", ADMIN_PATH_RIGHT),
    ("path", "/ä", "'/ä'", ADMIN_PATH_RIGHT),
    ("path", None, "null", "use text that is not empty"),
]
OTEL = [
    ("enabled", "maybe", "'maybe'", "use true or false"),
    ("content", "all", "'all'", "use one of none, short, full"),
    ("content", True, "true", "use one of none, short, full"),
]
AT_THE_TOP = [
    ("store", "localhost:6379", "'localhost:6379'", STORE_HINT),
    ("store", "reddis://me:s3cret@h", "'reddis://***@h'", "there is no such store; did you mean redis://?"),
    ("store", "redis://h?password=p s3cret", "'redis://h?***'", "it contains white space or control characters"),
    ("store", "redis://h/x?password=p@s3cret", "'redis://***'", STORE_HINT),
    ("store", "redis://me:p?x=1&s@s3cret", "'redis://***'", STORE_HINT),
    ("store", "redis://:s3cret@h:x?password=s3cret", "'redis://***@h:x?***'", STORE_HINT),
    ("store", 6379, "6379", "use text that is not empty"),
    ("store", False, "false", "use text that is not empty"),
    ("store", {"url": "redis://h"}, "a mapping", "use text that is not empty"),
    ("store_timeout_s", 0, "0", "use a number above 0"),
    ("store_timeout_s", "soon", "'soon'", "use a number above 0"),
]
BLOCKS: dict[str, Sequence[tuple[Any, ...]]]
BLOCKS = {
    "tool_call_loop.": LOOP,
    "serve.": SERVE,
    "admin.": ADMIN,
    "otel.": OTEL,
    "": AT_THE_TOP,
}
WRONG = [(f"{block}{key}", *rest) for block, rows in BLOCKS.items() for key, *rest in rows]


@pytest.mark.parametrize(("key", "value", "shown", "right"), WRONG)
def test_a_wrong_value_is_named(key: str, value: Any, shown: str, right: str) -> None:
    """The message is one line: full path, value, source, what is allowed."""
    given = value
    for name in reversed(key.split(".")):
        given = {name: given}
    message = complaint(given)
    assert message.startswith(f"{key} = {shown} (keyword): ")
    assert right in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"tool_call_loop": {"max_repeat": 3}}, "tool_call_loop.max_repeat (keyword): unknown key; did you mean"
         " tool_call_loop.max_repeats?"),
        ({"tool_call_loop": {"mod": "warn"}}, "tool_call_loop.mod (keyword): unknown key; did you mean"
         " tool_call_loop.mode?"),
        ({"tool_call_loop": {"models": {"*": {"mod": "warn"}}}}, "tool_call_loop.models.*.mod (keyword): unknown key;"
         " did you mean tool_call_loop.models.*.mode?"),
        ({"tool_call_lop": {}}, "tool_call_lop (keyword): unknown key; did you mean tool_call_loop?"),
        ({"max_repeats": 3}, "max_repeats (keyword): unknown key; did you mean tool_call_loop.max_repeats?"),
        ({"tool_call_loop": {"port": 1}}, "tool_call_loop.port (keyword): unknown key; did you mean serve.port?"),
        ({"serve": {"workrs": 2}}, "serve.workrs (keyword): unknown key; did you mean serve.workers?"),
        ({"tool_call_loop": {"error_messages": {"blok": "x"}}}, "tool_call_loop.error_messages.blok (keyword): unknown"
         " key; did you mean tool_call_loop.error_messages.block?"),
        ({"qqqq": "redis://u:s3cret@h"}, "qqqq (keyword): unknown key; the keys here are store, store_timeout_s,"
         " tool_call_loop, serve, admin, events, findings, otel"),
        ({"serve": {"store": "redis://u:s3cret@h"}}, "serve.store (keyword): unknown key; did you mean store?"),
        ({"stor": "redis://u:s3cret@h"}, "stor (keyword): unknown key; did you mean store?"),
        ({"similarity": {}}, "similarity (keyword): unknown key; did you mean tool_call_loop.similarity?"),
        ({"upsteam": "s3cret"}, "upsteam (keyword): unknown key; did you mean serve.upstream?"),
        ({"tool_call_loop": {"detectors": {"no_new": 4}}}, "tool_call_loop.detectors.no_new (keyword): unknown key; did"
         " you mean tool_call_loop.detectors.no_news?"),
        ({"tool_call_loop": {"commands": {"lock": []}}}, "tool_call_loop.commands.lock (keyword): unknown key; did you"
         " mean tool_call_loop.commands.locked?"),
        ({"tool_call_loop": {"per_tool": {"a": {"tool_loop_detection_mode": "warn"}}}}, "tool_call_loop.per_tool.a"
         ".tool_loop_detection_mode (keyword): unknown key; did you mean tool_call_loop.per_tool.a.mode?"),
        ({"tool_call_loop": {"similarity": {"treshold": 0.9}}}, "tool_call_loop.similarity.treshold (keyword): unknown"
         " key; did you mean tool_call_loop.similarity_threshold?"),
        ({"tool_call_loop": {"custom_message": "x"}}, "tool_call_loop.custom_message (keyword): unknown key; did you"
         " mean tool_call_loop.error_messages.guidance?"),
        ({"tool_loop_detection": {"enabled": False}}, "tool_loop_detection (keyword): unknown key; did you mean"
         " tool_call_loop?"),
        ({"tool_call_loop": {"models": {"openai:*": {"detectors": {"cicle": 3}}}}}, "tool_call_loop.models.openai:*."
         "detectors.cicle (keyword): unknown key; did you mean tool_call_loop.models.openai:*.detectors.cycle?"),
        ({7: "s3cret"}, "7 (keyword): unknown key; the keys here are store, store_timeout_s,"
         " tool_call_loop, serve, admin, events, findings, otel"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_told_the_right_one(source: dict[Any, Any], expected: str) -> None:
    """The nearest key is named with its full path, and the value, which may be anything, is not printed."""
    assert complaint(source) == expected


def test_keys_of_other_guards_are_told_their_own() -> None:
    """Each hint names a key that there is."""
    known = {dotted_name(path) for path, _ in keys()}
    for key, hint in FOREIGN_KEYS.items():
        assert complaint({key: 1}) == f"{key} (keyword): unknown key; {hint}"
        assert complaint({"tool_call_loop": {key: 1}}).endswith(hint)
        named = {name.rstrip(".") for name in re.findall(r"tool_call_loop[\w.]*", hint)}
        assert named <= known | {"tool_call_loop"}
        assert named or key in ("max_pattern_length", "min_pattern_length", "on_loop_detected", "token")


def test_agents_have_no_names() -> None:
    """The hint names what there is instead, and each of it exists."""
    agents = [{"name": "a", "tool_loop_detection": {"enabled": False, "custom_message": "No {tool_name}."}}]
    said = complaint({"agents": agents})
    assert said.startswith("agents (keyword): unknown key; requests do not say which agent sends them; ")
    assert {f"tool_call_loop.{key}" for key in ("per_tool", "models", "header_overrides")} <= set(
        re.findall(r"tool_call_loop\.\w+", said)
    )
    assert {dotted_name(path) for path, _ in keys()} >= set(re.findall(r"tool_call_loop[\w.]+", said))
    assert set(re.findall(rb"x-callfuse-\w+", said.encode())) <= set(HEADERS)


@pytest.mark.parametrize(
    ("pattern", "right"),
    [
        ("gpt-4o*", "use backend and model, as in openai:gpt-4o*"),
        ("opnai:gpt-4o*", "did you mean openai:gpt-4o*?"),
        ("Anthropc:*", "did you mean anthropic:*?"),
        ("vlm:*", "did you mean vllm:*?"),
        ("azure:gpt-4o", "the backends are anthropic, bedrock, cohere, gemini, ollama, openai, vllm"),
    ],
)
def test_a_glob_that_matches_no_model(pattern: str, right: str, tmp_path: Path) -> None:
    """No backend has a model of such a name: neither a dialect's vendor nor one that a route names."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "serve: {routes: [{path: /own, upstream: http://h, backend: vllm}]}\n"
        f'tool_call_loop:\n  models:\n    "{pattern}":\n      mode: block\n'
    )
    said = complaint(file)
    assert said == f"tool_call_loop.models.{pattern} ({file}, line 4): matches no model; {right}"


@pytest.mark.parametrize("pattern", ["*", "*:gpt-*", "*gpt-4o", "OpenAI:*", "o*:x", "[ao]*", "open?i:x", "own:model:1"])
def test_a_glob_that_may_match(pattern: str) -> None:
    """Whatever stands for the backend's name, in any case."""
    routes = [{"path": "/own", "upstream": "http://h", "backend": "Own"}]
    found = load_config({"tool_call_loop": {"models": {pattern: {"mode": "block"}}}, "serve": {"routes": routes}}, {})
    assert pattern in found.tool_call_loop.models


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ({"path": "a"}, f"[1].path = 'a' ({{}}): {PATH_RIGHT}"),
        ({"path": "/"}, f"[1].path = '/' ({{}}): {PATH_RIGHT}"),
        ({"path": "//h"}, f"[1].path = '//h' ({{}}): {PATH_RIGHT}"),
        ({"path": "/a/../b"}, f"[1].path = '/a/../b' ({{}}): {PATH_RIGHT}"),
        ({"path": "/a?b"}, f"[1].path = '/a?b' ({{}}): {PATH_RIGHT}"),
        ({"path": "/a%2f"}, f"[1].path = '/a%2f' ({{}}): {PATH_RIGHT}"),
        ({"path": None}, "[1].path = null ({}): use text that is not empty"),
        ({"upstream": "https://me:s3cret@"}, f"[1].upstream = 'https://***@' ({{}}): {UPSTREAM_RIGHT}"),
        ({"backend": "open ai"}, "[1].backend = 'open ai' ({}): use a name without : or white space, as in anthropic"),
        ({"backend": "a:b"}, "[1].backend = 'a:b' ({}): use a name without : or white space, as in anthropic"),
        ({"bakend": "a"}, "[1].bakend ({}): unknown key; did you mean serve.routes[1].backend?"),
    ],
)
def test_a_wrong_route_is_named(route: dict[str, Any], problem: str, tmp_path: Path) -> None:
    """With its place in the list, and in a file with its own line."""
    routes = [{"path": "/x", "upstream": "http://h"}, {"path": "/a", "upstream": "http://h", **route}]
    assert complaint({"serve": {"routes": routes}}) == "serve.routes" + problem.format("keyword")
    file = tmp_path / "c.yaml"
    lines = [
        f"    {'-' if key == 'path' else ' '} {key}: {json.dumps(value)}"
        for one in routes
        for key, value in one.items()
    ]
    file.write_text("\n".join(["serve:", "  routes:", *lines]))
    place = next(number for number, line in enumerate(lines, 3) if number > 4 and f" {next(iter(route))}:" in line)
    assert complaint(file) == "serve.routes" + problem.format(f"{file}, line {place}")


@pytest.mark.parametrize(
    ("admin", "routed", "hidden"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("/_callfuse", "/_callfuse/x", True),
        ("/a", "/ab", False),
        ("/a/b", "/a", False),
    ],
)
def test_the_admin_path_hides_no_route(admin: str, routed: str, hidden: bool, tmp_path: Path) -> None:
    """Nothing would ever reach it; off, the page hides none."""
    routes = [{"path": "/x", "upstream": "http://h"}, {"path": routed, "upstream": "http://h"}]
    file = tmp_path / "c.yaml"
    given = {"serve": {"routes": routes}} | ({"admin": {"path": admin}} if admin != "/_callfuse" else {})
    file.write_text(json.dumps(given))
    source = f"{file}, line 1" if "admin" in given else "default"
    if hidden:
        assert complaint(file) == (
            f"admin.path = '{admin}' ({source}): no request would reach serve.routes[1].path = '{routed}'; "
            "use another path"
        )
    assert load_config({**given, "admin": {"path": admin, "enabled": not hidden}}, {}).admin.path == admin


def test_the_admin_token_is_no_key() -> None:
    """Where it belongs is said, and it is not printed."""
    assert complaint({"admin": {"token": "s3cret"}}) == (
        "admin.token (keyword): unknown key; use the environment variable CALLFUSE_ADMIN_TOKEN"
    )


def test_a_route_needs_an_upstream() -> None:
    """What is missing is named like what is wrong."""
    assert complaint({"serve": {"routes": [{"path": "/a"}]}}) == (
        "serve.routes[0].upstream = null (keyword): use text that is not empty"
    )
    message = complaint(CALLFUSE_SERVE_ROUTES="/a=http://h,/b=ftp://h")
    assert message.startswith(
        "serve.routes[1].upstream = '/b=ftp://h' (environment variable CALLFUSE_SERVE_ROUTES): use http"
    )


def test_a_variable_that_does_not_parse_is_named() -> None:
    """The environment's problems name the key and the variable."""
    assert complaint(TOOL_LOOP_MAX_REPEATS="1") == (
        f"tool_call_loop.max_repeats = '1' (environment variable TOOL_LOOP_MAX_REPEATS): {REPEATS_RIGHT}"
    )
    assert complaint(TOOL_LOOP_TTL_SECONDS="soon") == (
        "tool_call_loop.ttl_seconds = 'soon' (environment variable TOOL_LOOP_TTL_SECONDS): use a number above 0"
    )
    assert complaint(TOOL_LOOP_MODE="warn,stop") == (
        "tool_call_loop.mode = ['warn', 'stop'] (environment variable TOOL_LOOP_MODE): "
        f"'stop' is not a rung; use {RUNGS}"
    )


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [
        ("tool_call_loop.mode", "blok", "block"),
        ("tool_call_loop.mode", "chance-then-blok", "chance_then_block"),
        ("tool_call_loop.mode", ["warn", "stear"], "steer"),
        ("tool_call_loop.enabled", "ture", "true"),
        ("tool_call_loop.similarity.algorithm", "levenstein", "levenshtein"),
        ("tool_call_loop.detectors.cycle", "flase", "false"),
        ("tool_call_loop.detectors.repeat", "ture", "true"),
        ("tool_call_loop.detectors.same_error_most", "wran", "warn"),
        ("serve.log_level", "wanring", "warning"),
        ("otel.content", "shrot", "short"),
    ],
)
def test_a_value_close_to_an_allowed_one(key: str, value: object, right: str) -> None:
    """The message ends with that one; if none is close, it only lists them."""
    block, *names = key.split(".")

    def given(one: object) -> dict[str, object]:
        for name in reversed(names):
            one = {name: one}
        return {block: one}

    assert complaint(given(value)).startswith(f"{key} = ")
    assert complaint(given(value)).endswith(f"; did you mean {right}?")
    assert "did you mean" not in complaint(given("qqqq"))


def test_all_problems_come_at_once() -> None:
    """Every problem of every source has its line."""
    message = complaint(
        {"tool_call_loop": {"mode": "blok", "max_repeat": 3}, "serve": {"port": -1}},
        CALLFUSE_WINDOW="1",
        CALLFUSE_HEARTBEAT="15",
    )
    keys = [
        "tool_call_loop.mode",
        "tool_call_loop.max_repeat ",
        "serve.port",
        "tool_call_loop.window",
        "CALLFUSE_HEARTBEAT",
    ]
    lines = message.splitlines()
    assert len(lines) == len(keys)
    assert all(any(line.startswith(key) for line in lines) for key in keys)


def test_a_source_of_the_wrong_kind_is_named() -> None:
    """What is neither mapping nor path is said to be so."""
    assert complaint(3) == "config = 3 (keyword): use a mapping or the path of a file"
    assert complaint("") == "config = '' (keyword): use a mapping or the path of a file"


@pytest.mark.parametrize(
    "upstream",
    [
        "htp://user:s3cret@h",
        "user:s3cret@h.example",
        "https://user:s3cret@h:port",
        "https://user:with/slash/s3cret@h?x",
        "https://user:with@at@s3cret@h?x",
        "https://user:s3cret with space@h",
        "https://h/?key=s3cret",
        "https://h/#s3cret",
        "x" * 115 + ":s3cret@h",
    ],
)  # fmt: skip
def test_no_message_holds_a_credential(upstream: str) -> None:
    """However a URL is wrong, neither its password nor its query is printed, here or by the settings class itself."""
    message = complaint(CALLFUSE_SERVE_UPSTREAM=upstream)
    assert message.startswith("serve.upstream = '")
    assert "s3cret" not in message
    with pytest.raises(ValidationError) as caught:
        ServeSettings(upstream=upstream)
    assert "s3cret" not in str(caught.value)
    message = complaint(CALLFUSE_STORE=upstream)
    assert message.startswith("store = '")
    assert "s3cret" not in message


@pytest.mark.parametrize(
    "upstream",
    [
        "http://h",
        "HTTPS://API.example/v1/",
        "https://user:s3cret@h:8443/base",
        "http://[::1]:8080",
        "http://127.0.0.1:1",
    ],
)
def test_an_upstream_stands_as_it_was_written(upstream: str) -> None:
    """A right URL is kept to the letter."""
    assert load_config({"serve": {"upstream": upstream}}, {}).serve.upstream == upstream


NO_OTHER_MODEL = "`escalate` needs another model; name it in tool_call_loop.escalate_model"
LADDER = ["steer", "escalate", "block"]


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ({"mode": LADDER}, ["mode"]),
        ({"per_tool": {"search": {"mode": LADDER}, "read": {"mode": "block"}}}, ["per_tool.search.mode"]),
        ({"models": {"openai:*": {"mode": LADDER}}, "mode": LADDER}, ["mode", "models.openai:*.mode"]),
    ],
)
def test_whoever_escalates_names_the_other_model(given: dict[str, Any], keys: list[str]) -> None:
    """For all, or for some models; each ladder that escalates is named where nobody is."""
    shown = "['steer', 'escalate', 'block'] (keyword)"
    lines = [f"tool_call_loop.{key} = {shown}: {NO_OTHER_MODEL}" for key in keys]
    assert sorted(complaint({"tool_call_loop": given}).splitlines()) == sorted(lines)
    named = load_config({"tool_call_loop": given | {"escalate_model": "gpt-x"}}, {}).tool_call_loop
    assert named.escalate_model == "gpt-x"
    for_some = {"anthropic:*": {"escalate_model": "claude-x"}} | given.get("models", {})
    found = load_config({"tool_call_loop": given | {"models": for_some}}, {}).tool_call_loop
    assert found.for_exchange("anthropic:claude-a").escalate_model == "claude-x"
    assert found.for_exchange("openai:gpt-a").escalate_model is None


def test_a_long_value_is_cut() -> None:
    """A message stays readable whatever was pasted into a key."""
    assert len(complaint({"tool_call_loop": {"finish_reason": "x" * 100_000}})) < 250


def test_every_field_can_say_what_it_takes() -> None:
    """The wording knows the type of every field, but for the ladder, which has its own words."""
    unknown = [path[-1] for path, field in leaves() if "another value" in describe_allowed(field)]
    assert unknown == ["mode"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"detectors": {"cycle": {"lap": 3}}},
            "tool_call_loop.detectors.cycle.lap (keyword): unknown key; the keys here are laps, limit, most, most_hard",
        ),
        (
            {"detectors": {"no_news": 1}},
            "tool_call_loop.detectors.no_news = 1 (keyword): use false, true, a whole number from 2, "
            "or a mapping (rounds, most, most_hard)",
        ),
        (
            {"detectors": {"repeat": {"limit": 3}}},
            "tool_call_loop.detectors.repeat.limit (keyword): unknown key; the keys here are most, most_hard; "
            "the limit of repeat is max_repeats",
        ),
        (
            {"detectors": {"repeat": 3}},
            "tool_call_loop.detectors.repeat = 3 (keyword): use false, true, or a mapping (most, most_hard); "
            "the limit is max_repeats",
        ),
        (
            {"detectors": {"same_error": {"most": "wern"}}},
            "tool_call_loop.detectors.same_error_most = 'wern' (keyword): use observe, warn, steer, force_text, "
            "escalate, block, or none; did you mean warn?",
        ),
        (
            {"detectors": {"cycle_most_hard": 3}},
            "tool_call_loop.detectors.cycle_most_hard = 3 (keyword): use observe, warn, steer, force_text, "
            "escalate, block, or none",
        ),
        (
            {"detectors": {"cycle": {"laps": 3, "limit": 4}}},
            "tool_call_loop.detectors.cycle: given twice (keyword; keyword); keep one",
        ),
        (
            {"per_tool": {"search": {"max_repeat": 3}}},
            "tool_call_loop.per_tool.search.max_repeat (keyword): unknown key; "
            "did you mean tool_call_loop.per_tool.search.max_repeats?",
        ),
        (
            {"per_tool": {"search": {"max_repeats": 1}}},
            "tool_call_loop.per_tool.search.max_repeats = 1 (keyword): use 0 (off) or a whole number from 2",
        ),
        (
            {"per_tool": {"search": 3}},
            "tool_call_loop.per_tool.search = 3 (keyword): use a mapping (enabled, mode, max_repeats, "
            "max_repeats_changing, ttl_seconds, similarity_threshold, detectors, error_messages, max_calls, poller, "
            "changes_state, ignore)",
        ),
        ({"per_tool": 3}, "tool_call_loop.per_tool = 3 (keyword): use a mapping of names"),
        (
            {"similarity_threshold": 2},
            "tool_call_loop.similarity_threshold = 2 (keyword): use a number above 0 to 1",
        ),
    ],
)
def test_settings_of_detectors_and_tools(given: dict[str, Any], problem: str) -> None:
    """Keys below the names of tools are named with their full path."""
    with pytest.raises(ConfigError) as error:
        load_config({"tool_call_loop": given}, {})
    assert str(error.value) == problem


def test_a_section_with_a_switch_takes_one() -> None:
    """`commands: off` is short for `commands: {enabled: false}`, and gives way like any value."""
    assert not load_config({"tool_call_loop": {"commands": False}}, {}).tool_call_loop.commands.enabled
    assert not load_config({"tool_call_loop": False}, {}).tool_call_loop.enabled
    assert not load_config({"admin": False}, {}).admin.enabled
    for text in ("off", "Off", "no", "false"):
        assert not load_config({"tool_call_loop": {"commands": text}}, {}).tool_call_loop.commands.enabled
        assert not load_config({"tool_call_loop": text}, {}).tool_call_loop.enabled
    for text in ("on", "YES", "true"):
        assert load_config({"tool_call_loop": {"commands": text}}, {}).tool_call_loop.commands.enabled
    assert "or true or false" in complaint({"tool_call_loop": {"commands": "maybe"}})
    assert complaint({"serve": False}).startswith("serve = false (keyword): use a mapping with the keys upst")


def test_the_keys_of_commands_are_those_that_commands_know() -> None:
    """The allow list speaks of the commands that there are."""
    assert tuple(KEYS) == COMMAND_KEYS
