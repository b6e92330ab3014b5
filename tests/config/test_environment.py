"""Variables: how values are written in them, and which names are none of callfuse's business."""

from pathlib import Path

import pytest

from callfuse.config import Config, _warn_once, load_config, resolve
from callfuse.config.environment import IN_FILES, SYNONYMS, admin_token, guardrail_key, variables
from callfuse.config.model import KeyPath
from callfuse.errors import ConfigError
from callfuse.policy.settings import MODES, Rung


@pytest.mark.parametrize(
    ("text", "ladder"),
    [
        ("warn", MODES["warn"]),
        (" chance ", MODES["chance_then_block"]),
        ("warn,steer,block", (Rung.WARN, Rung.STEER, Rung.BLOCK)),
        ("warn , block", (Rung.WARN, Rung.BLOCK)),
        ("Warn,FORCE-TEXT", (Rung.WARN, Rung.FORCE_TEXT)),
        ("BREAK", MODES["block"]),
        ("chance-then-break", MODES["chance_then_block"]),
        ("steer,", (Rung.STEER,)),
    ],
)
def test_a_ladder_is_written_with_commas(text: str, ladder: tuple[Rung, ...]) -> None:
    """A name is a mode; with a comma it is a list of rungs."""
    assert load_config(env={"TOOL_LOOP_MODE": text}).tool_call_loop.ladder == ladder


@pytest.mark.parametrize(
    ("text", "enabled"), [("0", False), ("off", False), ("No", False), ("FALSE", False), ("1", True), ("yes", True)]
)
def test_switches_take_the_usual_words(text: str, enabled: bool) -> None:
    """On and off may be written as people write them in environments."""
    assert load_config(env={"TOOL_LOOP_DETECTION_ENABLED": text}).tool_call_loop.enabled is enabled


@pytest.mark.parametrize(
    "env",
    [
        {"TOOL_LOOP_MAX_REPEATS": "", "CALLFUSE_CONFIG": " ", "CALLFUSE_SERVE_UPSTREAM": ""},
        {"CALLFUSE_CAPTURES": "/somewhere", "CALLFUSE_ADMIN_TOKEN": "no setting of any file"},
        {"TOOL_LOOP_COLOUR": "red", "TOOL_LOOP_MODEL": "gpt-5", "PATH": "/bin", "_CALLFUSE_WORKER_CONFIG": "{}"},
        {
            "CALLFUSE_SERVICE_HOST": "10.0.0.1",
            "CALLFUSE_SERVICE_PORT": "8100",
            "CALLFUSE_SERVICE_PORT_HTTP": "8100",
            "CALLFUSE_PORT": "tcp://10.0.0.1:8100",
            "CALLFUSE_PORT_8100_TCP": "tcp://10.0.0.1:8100",
            "CALLFUSE_PORT_8100_TCP_PROTO": "tcp",
            "CALLFUSE_SERVE_PORT": "tcp://10.0.0.2:8100",
            "CALLFUSE_SERVE_SERVICE_HOST": "10.0.0.2",
        },
    ],
    ids=["empty is not set", "the tests' own", "of others", "Kubernetes service links"],
)
def test_names_that_change_nothing(env: dict[str, str]) -> None:
    """Empty variables, other people's, and what Kubernetes writes about services called callfuse are no settings."""
    assert load_config(env=env) == Config()


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("CALLFUSE_HEARTBEAT", "did you mean CALLFUSE_HEARTBEAT_S?"),
        ("CALLFUSE_COMMANDS", "did you mean CALLFUSE_COMMANDS_ENABLED?"),
        ("CALLFUSE_DETECTORS_CYCEL", "did you mean CALLFUSE_DETECTORS_CYCLE?"),
        ("TOOL_LOOP_MAX_REPEAT", "did you mean TOOL_LOOP_MAX_REPEATS?"),
        ("TOOL_LOOP_TTL_SECOND", "did you mean TOOL_LOOP_TTL_SECONDS?"),
        ("CALLFUSE_MAX_REPEAT", "did you mean CALLFUSE_MAX_REPEATS?"),
        ("TOOL_LOOP_TTL", "did you mean TOOL_LOOP_TTL_SECONDS?"),
        ("TOOL_LOOP_ENABLED", "did you mean TOOL_LOOP_DETECTION_ENABLED?"),
        ("TOOL_LOOP_DETECTION", "did you mean TOOL_LOOP_DETECTION_ENABLED?"),
        ("TOOL_LOOP_DETECTION_MODE", "did you mean TOOL_LOOP_MODE?"),
        ("TOOL_LOOP_DETECTION_MAX_REPEATS", "did you mean TOOL_LOOP_MAX_REPEATS?"),
        ("TOOL_LOOP_DETECTION_TTL_SECONDS", "did you mean TOOL_LOOP_TTL_SECONDS?"),
        ("TOOLLOOP_MODE", "did you mean TOOL_LOOP_MODE?"),
        ("CALFUSE_HEARTBEAT_S", "did you mean CALLFUSE_HEARTBEAT_S?"),
        ("callfuse_window", "did you mean CALLFUSE_WINDOW?"),
        ("CALLFUSE_MODELS", "tool_call_loop.models has no variable; set it in the file"),
        ("CALLFUSE_PER_TOOL", "tool_call_loop.per_tool has no variable; set it in the file"),
        ("CALLFUSE_TTL", "did you mean CALLFUSE_TTL_SECONDS?"),
        ("CALFUSE_MODE", "did you mean CALLFUSE_MODE?"),
        ("CALLFUSE_UPSTREAM", "did you mean CALLFUSE_SERVE_UPSTREAM?"),
        ("CALLFUSE_ADMIN_TOKN", "did you mean CALLFUSE_ADMIN_TOKEN?"),
        ("CALLFUSE_TOKEN", "did you mean CALLFUSE_ADMIN_TOKEN?"),
        ("CALLFUSE_PORT", "did you mean CALLFUSE_SERVE_PORT?"),
        ("CALLFUSE_CONFIG_FILE", "did you mean CALLFUSE_CONFIG?"),
    ],
)
def test_an_unknown_name_is_told_the_right_one(name: str, right: str) -> None:
    """A `CALLFUSE_*` variable near one that is read is an error, which does not print what may be a token."""
    with pytest.raises(ConfigError) as caught:
        load_config(env={name: "s3cret"})
    assert str(caught.value).startswith(f"{name}: unknown environment variable; {right}")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("synonym", "path"), SYNONYMS.items())
def test_a_synonym_sets_the_same(synonym: str, path: KeyPath) -> None:
    """Each key has a `CALLFUSE_*` variable. Its synonym sets it, too; if both are set, to the same value only."""
    name = f"CALLFUSE_{path[-1].upper()}"
    value, other = {"enabled": ("false", "true"), "mode": ("warn", "block")}.get(path[-1], ("5", "7"))
    set_by_name = load_config(env={name: value})
    assert set_by_name != Config()
    assert load_config(env={synonym: value}) == load_config(env={name: value, synonym: value}) == set_by_name
    with pytest.raises(ConfigError) as caught:
        load_config(env={name: value, synonym: other})
    places = f"environment variable {name}; environment variable {synonym}"
    assert str(caught.value) == f"tool_call_loop.{path[-1]}: given twice ({places}); keep one"


@pytest.mark.parametrize("name", ["CALLFUSE_QQQQ", "CALLFUSE_IMAGE", "CALLFUSE_VERSION", "CALLFUSE_DOCKER_TAG"])
def test_an_unknown_name_near_none_is_worth_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It may be another program's. It is told once, and not what it holds."""
    _warn_once.cache_clear()
    for _ in range(2):
        assert load_config(env={name: "s3cret"}) == Config()
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [("WARNING", f"{name}: unknown environment variable, ignored by callfuse")]


@pytest.mark.parametrize("name", ["TOOL_LOOP_MODDE", "TOOL_LOOP_MODEL"])
def test_a_short_name_that_is_near_is_worth_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It may be one of ours with a typing error, or another program's."""
    _warn_once.cache_clear()
    assert load_config(env={name: "s3cret"}) == Config()
    assert load_config(env={"TOOL_LOOP_COLOUR": "red"}) == Config()
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    said = f"{name}: unknown environment variable, ignored by callfuse; did you mean TOOL_LOOP_MODE?"
    assert told == [("WARNING", said)]


def test_a_window_without_effect_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It holds ten calls all the same: said once, with its source; ten and the default are fine."""
    _warn_once.cache_clear()
    for _ in range(2):
        assert load_config(env={"CALLFUSE_WINDOW": "9"}).tool_call_loop.window == 9
    assert load_config(env={"CALLFUSE_WINDOW": "10"}) == load_config({"tool_call_loop": {"window": 10}}, {})
    told = [(record.levelname, record.getMessage().partition(",")[0]) for record in caplog.records]
    place = "tool_call_loop.window = 9 (environment variable CALLFUSE_WINDOW)"
    assert told == [("WARNING", f"{place}: a window has at least 10 calls")]


def test_the_admin_token() -> None:
    """One that could be guessed, or sent in no header, is refused, and not printed."""
    assert admin_token({}) is None
    assert admin_token({"CALLFUSE_ADMIN_TOKEN": " "}) is None
    assert admin_token({"CALLFUSE_ADMIN_TOKEN": " a-long-enough-token "}) == "a-long-enough-token"
    for wrong in ("s3cret", "s3cret of some words", "s3cret-with-an-ä-in-it", "s3cret-and-so-on\r\nx: y"):
        with pytest.raises(ConfigError) as caught:
            admin_token({"CALLFUSE_ADMIN_TOKEN": wrong})
        assert str(caught.value) == (
            "the admin token (environment variable CALLFUSE_ADMIN_TOKEN) is too short, or has a character "
            "that no header may have; use 16 or more ASCII characters without spaces"
        )


def test_secrets_may_stand_in_files(tmp_path: Path) -> None:
    """As Docker and others hand them over; the end of a line is no part of them, and the source is told."""
    (tmp_path / "store").write_text("redis://user:s3cret@cache:6379/0\n")
    (tmp_path / "token").write_text(" a-long-enough-token\n")
    resolved = resolve(env={"CALLFUSE_STORE_FILE": str(tmp_path / "store"), "CALLFUSE_STORE": " "})
    assert resolved.config.store == "redis://user:s3cret@cache:6379/0"
    assert resolved.sources[("store",)] == "environment variable CALLFUSE_STORE_FILE"
    env = {"CALLFUSE_ADMIN_TOKEN_FILE": str(tmp_path / "token"), "CALLFUSE_GUARDRAIL_KEY_FILE": str(tmp_path / "token")}
    assert admin_token(env) == guardrail_key(env) == "a-long-enough-token"
    assert load_config(env=env) == Config()
    settings = {"CALLFUSE_STORE", "CALLFUSE_SERVE_UPSTREAM", "CALLFUSE_EVENTS_WEBHOOK", "CALLFUSE_EVENTS_SECRET"}
    assert set(IN_FILES.values()) & set(variables()) == settings
    page = (Path(__file__).parents[2] / "docs/settings.md").read_text()
    assert [name for name in IN_FILES if f"`{name}`" not in page] == []
    assert not set(IN_FILES) & set(variables())


@pytest.mark.parametrize("name", ["CALLFUSE_STORE", "CALLFUSE_ADMIN_TOKEN"])
@pytest.mark.parametrize(
    ("content", "also", "said"),
    [
        (None, "", "NAME_FILE: cannot read PATH: No such file or directory; name a file that contains only the secret"),
        (b" \n", "", "NAME_FILE: PATH is empty; name a file"),
        (b"\xff" * 20, "", "NAME_FILE: PATH is not text; name a file"),
        (b"s3cret-" * 10_000, "", "NAME_FILE: PATH is too long; name a file"),
        (b"redis://s3cret", "redis://s3cret", "NAME and NAME_FILE are both set; keep one of them"),
    ],
)
def test_a_file_that_holds_no_secret(name: str, content: bytes | None, also: str, said: str, tmp_path: Path) -> None:
    """Ends the start, in a line with the other problems, and without what is in it."""
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    env = {f"{name}_FILE": str(path), **({name: also} if also else {})}
    with pytest.raises(ConfigError) as caught:
        (admin_token if "TOKEN" in name else lambda env: load_config(env=env))(env)
    assert said.replace("NAME", name).replace("PATH", str(path)) in str(caught.value)
    assert "s3cret" not in str(caught.value)
