"""Which source wins: keyword over environment over file, key by key, and command line options over all."""

import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from callfuse.config import Config, load_config
from callfuse.config.environment import variables
from callfuse.config.model import KeyPath, leaves
from callfuse.config.serve import ServeSettings
from callfuse.policy.rungs import Rung
from callfuse.policy.settings import MODES

# For each key whose type does not give its values: what the file, the environment and the keyword say.
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "mode": ("observe", "warn", "block"),
    "store": ("redis://file.example", "valkey://env.example:1/2", "memory://"),
    "similarity_threshold": (0.5, "0.6", 0.7),
    "holdout": (0.5, "0.6", 0.7),
    "warn_at": (0.5, "0.6", 0.7),
    "pollers": (["wait_a"], "wait_b,wait_c", ["wait_d"]),
    "screen_tools": (["tap_a"], "tap_b,tap_c", ["tap_d"]),
    "person_tools": (["ask_a"], "ask_b,ask_c", ["ask_d"]),
    "note_tools": (["note_a"], "note_b,note_c", ["note_d"]),
    "state_changing": (["write_a"], "write_b,write_c", ["write_d"]),
    "credential_headers": (["x-a"], "x-b,x-c", ["x-d"]),
    "escalate_model": ("model-a", "model-b", "model-c"),
    "prefix": ("//", "!!", "#"),
    "keys": (["tool-loop-mode"], "tool-loop-ttl,tool_loop_mode", ["tool_loop_ttl"]),
    "locked": (["tool-loop-mode"], "tool-loop-ttl", ["tool_loop_ttl"]),
    "upstream": ("http://file.example", "http://env.example", "http://keyword.example"),
    "hosts": (["a.example"], "b.example,c.example", ["d.example"]),
    "routes": (
        [{"path": "/a/", "upstream": "http://file.example", "backend": "vllm"}],
        "/b=http://one.example,/c=http://two.example",
        ["/d=http://keyword.example"],
    ),
    "max_exchange_bytes": (20_000, "30000", 40_000),
    "max_exchanges_bytes": (100_000, "200000", 300_000),
    "feedback_file": ("file.jsonl", "env.jsonl", "keyword.jsonl"),
    "webhook": ("http://file.example", "http://env.example/a", "https://keyword.example/b"),
    "secret": ("from the file....", "from the environment", "from the keyword."),
    "kinds": (["finding"], "blown,repeat", ["action"]),
    "tls_certificate": ("file.pem", "env.pem", "keyword.pem"),
    "tls_key": ("file.pem", "env.pem", "keyword.pem"),
    "path": ("/file", "/env/", "/keyword"),
    "host": ("10.0.0.1", "10.0.0.2", "10.0.0.3"),
    "log_level": ("debug", "warning", "error"),
    "block": ("from the file", "from the environment", "from the keyword"),
    "warning": ("from the file", "from the environment", "from the keyword"),
    "guidance": ("from the file", "from the environment", "from the keyword"),
    "runaway_arguments": (False, "Warn", "block"),
    "runaway_text": (False, "Observe", "warn"),
    "runaway_reasoning": ("off", "observe", "warn"),
    "runaway_finish": ("off", "observe", "warn"),
    "blown": ("from the file", "from the environment", "from the keyword"),
}
NEEDED = {
    "money": "    prices: {gpt: {input: 1, output: 1}}\n",
    "period": "    by: credential\n",
    "tls_key": "  tls_certificate: cert.pem\n",
}
"""The lines of a file without which a key means nothing."""
NUMBERS = (21, "22", 23)
TYPES = {path: field.annotation for path, field in leaves()}
SWITCHES = {path for path, annotation in TYPES.items() if annotation is bool}


def drawn(path: KeyPath) -> tuple[Any, Any, Any]:
    """What the file, the environment and the keyword say: of a choice the last word, the first, and the last again."""
    if path in SWITCHES:
        return (False, "true", False)
    if path[-1].endswith(("_most", "_most_hard")):
        return ("observe", "Warn", "none")
    if get_origin(TYPES[path]) is Literal:
        words = get_args(TYPES[path])
        return (words[-1], words[0], words[-1])
    return VALUES.get(path[-1], NUMBERS)


def nested(path: KeyPath, value: Any) -> dict[str, Any]:
    """The mapping in the file's shape that holds one value."""
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def held(config: Config, path: KeyPath) -> Any:
    """The value under a path."""
    value: Any = config
    for name in path:
        value = getattr(value, name)
    return value


def meant(path: KeyPath, value: Any) -> Any:
    """What a raw value of a source stands for."""
    if path[-1].endswith(("_most", "_most_hard")):
        return Rung.BLOCK if value == "none" else Rung(value.lower())
    if path[-1].startswith("runaway_"):
        return Rung(value.lower()) if value not in (False, "off") else "off"
    if path[-1] == "mode":
        return MODES[value]
    if path in SWITCHES:
        return value in (True, "true")
    if path[-1] in (
        "pollers",
        "screen_tools",
        "person_tools",
        "note_tools",
        "state_changing",
        "credential_headers",
        "hosts",
        "kinds",
    ):
        return tuple(value.split(",")) if isinstance(value, str) else tuple(value)
    if path[-1] == "routes":
        return ServeSettings.model_validate({"routes": value.split(",") if isinstance(value, str) else value}).routes
    if path == ("admin", "path"):
        return value.rstrip("/")
    if path[-1] in ("keys", "locked"):
        names = value.split(",") if isinstance(value, str) else value
        return tuple(name.replace("_", "-") for name in names)
    if isinstance(value, str) and path[-1] in ("similarity_threshold", "holdout", "warn_at"):
        return float(value)
    return float(value) if str(value).isdigit() else value


def yaml_file(folder: Path, path: KeyPath, value: Any) -> Path:
    """A file that sets one key."""
    file = folder / "callfuse.yaml"
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(path)]
    file.write_text("\n".join(lines) + f" {json.dumps(value)}\n{NEEDED.get(path[-1], '')}")
    return file


@pytest.mark.parametrize(("variable", "path"), variables().items())
def test_each_source_overrides_the_ones_below_it(variable: str, path: KeyPath, tmp_path: Path) -> None:
    """For every variable: file alone, environment over file, keyword over both."""
    in_file, in_env, in_keyword = drawn(path)
    file = yaml_file(tmp_path, path, in_file)
    env = {"CALLFUSE_CONFIG": str(file)}
    assert held(load_config(env=env), path) == meant(path, in_file)
    assert held(load_config(file, {}), path) == meant(path, in_file)
    env[variable] = in_env
    assert held(load_config(env=env), path) == meant(path, in_env)
    assert held(load_config(file, env), path) == meant(path, in_env)
    assert held(load_config(nested(path, in_keyword), env), path) == meant(path, in_keyword)


def test_a_source_says_only_what_it_changes(tmp_path: Path) -> None:
    """Sections are merged key by key, so each source's own keys stand beside the others'."""
    file = tmp_path / "callfuse.yaml"
    file.write_text("tool_call_loop:\n  window: 20\n  error_messages: {block: from the file}\nserve: {port: 9000}\n")
    env = {"CALLFUSE_CONFIG": str(file), "TOOL_LOOP_MAX_REPEATS": "5", "CALLFUSE_ERROR_MESSAGES_WARNING": "from env"}
    config = load_config({"tool_call_loop": {"mode": "warn", "error_messages": {"guidance": "from keyword"}}}, env)
    loop = config.tool_call_loop
    assert (loop.window, loop.max_repeats, loop.mode, config.serve.port) == (20, 5, MODES["warn"], 9000)
    texts = loop.error_messages
    assert (texts.block, texts.warning, texts.guidance) == ("from the file", "from env", "from keyword")


def test_a_file_that_is_given_replaces_the_named_one(tmp_path: Path) -> None:
    """With a path, `CALLFUSE_CONFIG` is not even opened."""
    file = yaml_file(tmp_path, ("serve", "port"), 9001)
    assert load_config(str(file), {"CALLFUSE_CONFIG": str(tmp_path / "missing.yaml")}).serve.port == 9001


def test_options_override_every_source_for_their_keys(tmp_path: Path) -> None:
    """A command line option wins; one that was not given changes nothing."""
    file = yaml_file(tmp_path, ("serve", "port"), 9001)
    env = {"CALLFUSE_SERVE_PORT": "9002", "CALLFUSE_SERVE_HOST": "10.0.0.2"}
    env["CALLFUSE_STORE"] = "redis://env.example"
    config = load_config(file, env, options={"store": None, "serve": {"port": 9003, "host": None}})
    assert (config.serve.port, config.serve.host, config.store) == (9003, "10.0.0.2", "redis://env.example")
    config = load_config(file, env, options={"store": "memory://", "serve": {"port": None}})
    assert (config.serve.port, config.store) == (9002, "memory://")


def test_nothing_given_is_the_defaults() -> None:
    """Without any source the defaults of the classes hold."""
    assert load_config(env={}) == Config()


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no environment is passed in, it is that of the process."""
    monkeypatch.setenv("TOOL_LOOP_MAX_REPEATS", "7")
    assert load_config().tool_call_loop.max_repeats == 7


def test_a_config_stands_as_it_is() -> None:
    """A resolved configuration is not resolved again."""
    config = load_config({"serve": {"port": 9004}}, {})
    assert load_config(config, {"CALLFUSE_SERVE_PORT": "9005"}) is config


def test_a_config_survives_json() -> None:
    """What a parent process hands to its workers is what they read, modes and templates included."""
    config = load_config(
        {"tool_call_loop": {"mode": ["warn", "steer", "block"], "error_messages": {"block": "[{count}] \u2028 stop"}}},
        {"CALLFUSE_SERVE_UPSTREAM": "https://user:secret@vendor.example/v1"},
    )
    assert Config.model_validate_json(config.model_dump_json()) == config


def test_every_field_has_one_variable_of_its_own() -> None:
    """A field that is added to a settings class gets its variable by existing, and no two share one."""
    assert sorted(variables().values()) == sorted(path for path, _ in leaves())
    expected = {f"CALLFUSE_SERVE_{name.upper()}" for name in type(Config().serve).model_fields}
    assert expected == {name for name, path in variables().items() if path[0] == "serve"}
    loop = {path[1] for path in variables().values() if path[0] == "tool_call_loop"}
    by_name = {"per_tool", "models"}
    assert loop | by_name == set(type(Config().tool_call_loop).model_fields)
