"""The table of variables: where a command's clients are led, and what a guard asks for them."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from callfuse.cli.agents import IF_SET, VENDORS, wire, with_version
from callfuse.cli.codex import led_to
from callfuse.config.serve import Route
from callfuse.dialects import dialect_of
from callfuse.errors import ConfigError
from callfuse.proxy.target import Upstream
from tests.project.sources import document, quoted

GUARD = "http://127.0.0.1:49152"
ASKS = {
    "OPENAI_BASE_URL": "/responses",
    "OPENAI_API_BASE": "/chat/completions",
    "ANTHROPIC_BASE_URL": "/v1/messages",
    "GOOGLE_GEMINI_BASE_URL": "/v1beta/models/m:streamGenerateContent",
    "OLLAMA_HOST": "/api/chat",
    "OLLAMA_API_BASE": "/api/chat",
    "CO_API_URL": "/v2/chat",
}
"""What a client puts behind the base URL of its variable."""


def asked(env: dict[str, str], name: str, path: str, upstream: str | None = None) -> str:
    """The URL that the guard asks for what a client puts behind the base URL of this variable."""
    wiring = wire(env, upstream)
    base = wiring.variables(GUARD, env)[name].removeprefix(GUARD)
    routes = [Route(path=route, upstream=url) for route, url in wiring.routes.items()]
    best = max((one for one in routes if one.holds(base + path)), key=lambda one: len(one.path))
    return str(Upstream.parse(best.upstream).url({"path": base + path}, best.path))


@pytest.mark.parametrize("name", ASKS)
def test_by_itself_each_vendor_is_asked_as_before(name: str) -> None:
    """No variable is set: clients reach their vendor's own API, by a path that is guarded."""
    vendor = next(one for one in VENDORS if name in one.variables)
    expected = vendor.upstream + vendor.path + ASKS[name]
    assert asked({}, name, ASKS[name]) == expected
    assert dialect_of(f"{wire({}).paths[name]}{ASKS[name]}") is not None


def test_the_table_is_tested() -> None:
    """Every variable of the table is asked for here."""
    assert list(ASKS) == [name for vendor in VENDORS for name in vendor.variables]


@pytest.mark.parametrize("name", [*ASKS, *IF_SET])
@pytest.mark.parametrize(
    "url", ["https://gateway.example/team/a", "http://127.0.0.1:8000/v1", "https://u:p@h.example", "http://h/v1/"]
)
def test_what_the_user_has_set_is_the_upstream(name: str, url: str) -> None:
    """A client asks for exactly what it would have asked for, with the same path at the end of its base URL."""
    path = ASKS.get(name, "/anything")
    assert asked({name: url}, name, path) == url.replace("u:p@", "").rstrip("/") + path
    assert wire({name: url}).variables(GUARD, {})[name].endswith(url.rstrip("/").partition("://")[2].partition("/")[2])


def test_two_variables_of_one_vendor_may_differ() -> None:
    """Each keeps its own upstream."""
    env = {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "http://b/v2"}
    assert asked(env, "OPENAI_BASE_URL", "/x") == "http://a/v1/x"
    assert asked(env, "OPENAI_API_BASE", "/x") == "http://b/v2/x"


def test_a_variable_that_is_set_speaks_for_the_other() -> None:
    """A client that reads the other name goes to the user's upstream, too."""
    assert asked({"OPENAI_API_BASE": "http://b/v2"}, "OPENAI_BASE_URL", "/x") == "http://b/v2/x"


def test_variables_without_an_own_upstream_are_left_alone() -> None:
    """They are not set where the user has not set them."""
    assert not {*IF_SET} & {*wire({}).variables(GUARD, {})}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("box", "http://box:11434"),
        ("box:1/base", "http://box:1/base"),
        ("https://box", "https://box"),
    ],
)
def test_ollama_s_short_addresses_are_read(value: str, expected: str) -> None:
    """OLLAMA_HOST needs no scheme and no port, and may name the address that a server listens on."""
    assert asked({"OLLAMA_HOST": value}, "OLLAMA_HOST", "/api/chat") == f"{expected}/api/chat"


@pytest.mark.parametrize("url", ["http://127.0.0.1:4000", "http://127.0.0.1:4000/v1"])
@pytest.mark.parametrize("name", ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"])
def test_an_upstream_is_for_all(url: str, name: str) -> None:
    """One gateway for all vendors wins over what is set; its base URL may end in the version or not."""
    env = {name: "http://elsewhere"}
    path = "/v1/messages" if name == "ANTHROPIC_BASE_URL" else "/chat/completions"
    expected = "http://127.0.0.1:4000" + (path if path.startswith("/v1") else f"/v1{path}")
    assert asked(env, name, path, url) == expected


def test_an_upstream_whose_host_names_a_vendor_is_for_that_one() -> None:
    """The others stay as they are."""
    upstream = "https://eu.api.anthropic.com"
    assert asked({}, "ANTHROPIC_BASE_URL", "/v1/messages", upstream) == f"{upstream}/v1/messages"
    assert asked({}, "OPENAI_BASE_URL", "/x", upstream) == "https://api.openai.com/v1/x"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_BASE_URL", "api.openai.com/v1"),
        ("ANTHROPIC_BASE_URL", "https://h/?a=1"),
        ("ANTHROPIC_BASE_URL", "https://[h"),
        ("OLLAMA_HOST", "http://:0"),
        ("AZURE_OPENAI_ENDPOINT", "ftp://h"),
    ],
)
def test_a_value_that_is_no_base_url_is_named(name: str, value: str) -> None:
    """The message names the variable, and not its value, which may hold a key."""
    with pytest.raises(ConfigError, match=f"^{name}: this environment variable contains no base URL") as raised:
        wire({name: value})
    assert value not in str(raised.value)


def test_a_command_s_proxy_is_not_asked_for_the_guard() -> None:
    """It would look for 127.0.0.1 on its own machine."""
    env = {"http_proxy": "http://proxy:3128", "NO_PROXY": "internal"}
    found = wire(env).variables(GUARD, env)
    assert found["NO_PROXY"] == found["no_proxy"] == "internal,127.0.0.1,localhost"
    assert "NO_PROXY" not in wire({}).variables(GUARD, {"HTTPS_PROXY": "http://proxy:3128"})


@pytest.mark.parametrize("program", ["codex", "/usr/bin/codex", "C:/npm/codex.cmd", "C:\\npm\\codex.exe"])
def test_codex_gets_a_profile(program: str, tmp_path: Path) -> None:
    """It reads no variable, and others read its command line: the address stands in a file that only its user can read,
    while the command runs. What the user has set for OpenAI holds for it."""
    wiring, home = wire({"OPENAI_BASE_URL": "https://gateway/api"}), tmp_path / "codex"
    with wiring.command([program, "exec", "hi"], GUARD, {"CODEX_HOME": str(home)}) as command:
        [file] = home.iterdir()
        name = file.name.removesuffix(".config.toml")
        assert command == [program, "--profile", name, "exec", "hi"]
        assert tomllib.loads(file.read_text()) == {"openai_base_url": f"{GUARD}/openai/api"}
        assert os.name == "nt" or file.stat().st_mode & 0o777 == 0o600
    assert [*home.iterdir()] == []
    with wiring.command(["claude", "-p", "codex"], GUARD, {}) as command:
        assert command == ["claude", "-p", "codex"]


@pytest.mark.parametrize("chosen", [["-p", "deep"], ["-pdeep"], ["--profile", "deep"], ["--profile=deep"]])
def test_a_profile_that_the_user_has_chosen_holds(chosen: list[str], tmp_path: Path) -> None:
    """Codex takes one: the run's own sets the same, and the guard's address in place of another. A prompt is left."""
    (tmp_path / "deep.config.toml").write_text('model = "m"\nopenai_base_url = "http://other"\n[tui]\na = 1\n')
    with led_to("http://guard/v1", ["codex", "exec", *chosen, "--", "-p"], {"CODEX_HOME": str(tmp_path)}) as command:
        name = command[2]
        assert command == ["codex", "--profile", name, "exec", "--", "-p"]
        profile = tomllib.loads((tmp_path / f"{name}.config.toml").read_text())
        assert profile == {"openai_base_url": "http://guard/v1", "model": "m", "tui": {"a": 1}}
    assert [file.name for file in tmp_path.iterdir()] == ["deep.config.toml"]


KILLED = """
import os, signal, sys
from callfuse.cli.codex import led_to
with led_to("http://guard/v1", ["codex"], {"CODEX_HOME": sys.argv[1]}):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_was_killed_leaves_no_profile_for_ever(tmp_path: Path) -> None:
    """The next run removes it, and none that may be in use: another run's, another machine's, or the user's own."""
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert killed.returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    machine = left.name.split("-")[1]
    kept = {f"callfuse-{machine}-{os.getpid()}-01234567.config.toml", f"{left.name}.bak", "callfuse-mine.config.toml"}
    kept.add(left.name.replace(machine, "0" * 8))
    for name in kept:
        (tmp_path / name).touch()
    with led_to("http://guard/v1", ["codex"], {"CODEX_HOME": str(tmp_path)}) as command:
        assert {file.name for file in tmp_path.iterdir()} == {*kept, f"{command[2]}.config.toml"}


def test_a_profile_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """As Codex itself would say, and nothing is left behind."""
    with (
        pytest.raises(FileNotFoundError, match=r"deep\.config\.toml"),
        led_to("http://guard/v1", ["codex", "-p", "deep"], {"CODEX_HOME": str(tmp_path)}),
    ):
        pass
    assert [*tmp_path.iterdir()] == []


def test_both_readings_of_anthropic_s_variable_are_guarded() -> None:
    """Some clients want /v1 in it, and some put it behind."""
    assert with_version("/anthropic/messages") == with_version("/anthropic/v1/messages") == "/anthropic/v1/messages"
    assert with_version("/anthropic/gateway/messages") == "/anthropic/gateway/messages"


def test_the_page_names_every_variable() -> None:
    """Whoever looks for one finds where it leads."""
    shown = quoted(document("docs/agents.md"))
    rows = {name: vendor for vendor in VENDORS for name in vendor.variables}
    assert {*rows, *IF_SET} <= {*shown}
    assert all(one.upstream in shown and one.route + one.path in shown for one in VENDORS)
