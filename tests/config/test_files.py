"""The YAML file: what it may be, and where in it something is wrong."""

from pathlib import Path

import pytest

from callfuse.config import Config, load_config
from callfuse.config.files import parse
from callfuse.errors import ConfigError


def problems(text: str | bytes, folder: Path) -> list[str]:
    """What is wrong with a file of this text, a line each, its folder cut off."""
    file = folder / "callfuse.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    return str(caught.value).replace(f"{folder}/", "").splitlines()


FULL = """\
tool_call_loop:
  enabled: true
  mode: [warn, steer, block]
  max_repeats: 4
  ttl_seconds: 600
  error_messages:
    block: "[callfuse] Stopped {tool_name} after {count} calls."
serve:
  upstream: https://api.openai.com
  log_level: WARNING
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    """A path as text or as a path, and a byte order mark, lead to the same configuration."""
    file = tmp_path / "callfuse.yaml"
    file.write_text(FULL)
    config = load_config(file, {})
    loop = config.tool_call_loop
    assert (loop.max_repeats, loop.ttl_seconds, loop.ladder) == (4, 600, ("warn", "steer", "block"))
    assert (config.serve.upstream, config.serve.log_level) == ("https://api.openai.com", "warning")
    file.write_bytes(b"\xef\xbb\xbf" + FULL.encode())
    assert load_config(str(file), {}) == config


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "tool_call_loop:\n  # mode: warn\nserve:\n", "{}"])
def test_a_file_that_says_nothing_is_fine(text: str, tmp_path: Path) -> None:
    """An empty file, and sections whose every line is commented out, leave the defaults."""
    file = tmp_path / "callfuse.yaml"
    file.write_text(text)
    assert load_config(file, {}) == Config()


def test_merge_keys_may_be_overridden(tmp_path: Path) -> None:
    """YAML's `<<` brings keys in; saying one of them again is no duplicate."""
    file = tmp_path / "callfuse.yaml"
    file.write_text("serve:\n  <<: {port: 9000, workers: 2}\n  port: 9001\n")
    serve = load_config(file, {}).serve
    assert (serve.port, serve.workers) == (9001, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tool_call_loop:\n  mode: warn: block\n", "callfuse.yaml, line 2, column 13: this is not valid YAML: "
         "mapping values are not allowed here"),
        ("tool_call_loop: [\n", "callfuse.yaml, line 2, column 1: this is not valid YAML: "),
        ("tool_call_loop:\n\tmode: warn\n", "callfuse.yaml, line 2: indented with a tab; indent with spaces"),
        ("serve:\r\n  port: 1\r\n  \thost: h\r\n", "callfuse.yaml, line 3: indented with a tab; indent with spaces"),
        ("serve:\t{}\n", "callfuse.yaml, line 1, column 7: this is not valid YAML: found character"),
        ("serve: *nobody\n", "callfuse.yaml, line 1, column 8: this is not valid YAML: found undefined alias 'nobody'"),
        ("tool_call_loop:\n  per_tool:\n    *_status: {}\n", "callfuse.yaml, line 3, column 5: this is not valid YAML: "
         "found undefined alias '_status'; put text that begins with !, * or & in quotes"),
        ("tool_call_loop:\n  commands:\n    prefix: !/\n", "callfuse.yaml, line 3, column 13: this is not valid YAML: "
         "could not determine a constructor for the tag '!/'; put text that begins with !, * or & in quotes"),
        ("tool_call_loop: {commands: {prefix: !/}}\n", "callfuse.yaml, line 1, column 39: this is not valid YAML: "
         "expected ' ', but found '}'; put text that begins with !, * or & in quotes"),
        ("serve: !!python/object:os.system {}\n", "callfuse.yaml, line 1, column 8: this is not valid YAML: could not"
         " determine a constructor"),
        ("a: 1\n---\nb: 2\n", "callfuse.yaml, line 2, column 1: this is not valid YAML: but found another document"),
        ("serve:\n  host: \x07\n", "callfuse.yaml, line 2, column 9: YAML does not allow the character "),
        ("just words\n", "callfuse.yaml: contains 'just words'; use a mapping with keys such as tool_call_loop"),
        ("- a\n- b\n", "callfuse.yaml: contains ['a', 'b']; use a mapping"),
        (b"serve: \xff\n", "callfuse.yaml: cannot read this file: it is not UTF-8 (byte 7)"),
        ("tool_call_loop: 3\n", "tool_call_loop = 3 (callfuse.yaml, line 1): use a mapping with the keys"
         " enabled, mode, "),
        ("serve:\n  port: 70000\n", "serve.port = 70000 (callfuse.yaml, line 2): use a whole number from 0 to 65535"),
        ("tool_call_loop:\n  mode: off\n", "tool_call_loop.mode = false (callfuse.yaml, line 2): use one of observe"),
        ("tool_call_loop:\n  max_repeats: off\n", "tool_call_loop.max_repeats = false (callfuse.yaml, line 2): use 0"
         " (off) or a whole number from 2"),
        ("tool_call_loop:\n\n  similar: 3\n", "tool_call_loop.similar (callfuse.yaml, line 3): unknown key; "),
        ("serve: {port: 1, host: h, port: 2}\n", "serve.port (callfuse.yaml): given twice, in lines 1 and 1; keep one"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_named_with_the_place(text: str | bytes, expected: str, tmp_path: Path) -> None:
    """One line with the file, the line and, for YAML itself, the column."""
    lines = problems(text, tmp_path)
    assert len(lines) == 1
    assert lines[0].startswith(expected)


def test_duplicates_are_all_found(tmp_path: Path) -> None:
    """A key given twice, at any depth, is named with both lines, beside whatever else is wrong."""
    text = "tool_call_loop:\n  mode: warn\n  mode: blok\nserve: {}\nserve: {}\n"
    found = problems(text, tmp_path)
    assert found[0] == "tool_call_loop.mode (callfuse.yaml): given twice, in lines 2 and 3; keep one"
    assert found[1] == "serve (callfuse.yaml): given twice, in lines 4 and 5; keep one"
    assert found[2].startswith("tool_call_loop.mode = 'blok' (callfuse.yaml, line 3): use one of observe, ")
    assert len(found) == 3


def test_a_file_that_holds_itself_is_refused(tmp_path: Path) -> None:
    """An alias to the mapping that it stands in ends as an unknown key and not in a recursion."""
    assert problems("serve: &again\n  host: h\n  within: *again\n", tmp_path) == [
        "serve.within (callfuse.yaml, line 3): unknown key; the keys here are upstream, routes, host,"
        " hosts, port, workers, tls_certificate, tls_key, log_level, log_format, access_log, read_timeout_s,"
        " connect_timeout_s, first_byte_timeout_s, idle_timeout_s, drain_s, shutdown_timeout_s, max_connections"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deep.yaml", "deep.toml"])
def test_a_file_that_is_too_deep_is_refused(name: str) -> None:
    """Not with a traceback."""
    assert parse(f"a{' =' if name.endswith('toml') else ':'} " + "[" * 9999, name).problems == [
        f"{name}: too many nested brackets"
    ]


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """A missing file and a folder are problems, also where the environment names them, which is said then."""
    missing = str(tmp_path / "missing.yaml")
    named = f"{missing} (environment variable CALLFUSE_CONFIG)"
    for source, env, place in ((missing, {}, missing), (None, {"CALLFUSE_CONFIG": missing}, named)):
        with pytest.raises(ConfigError) as caught:
            load_config(source, env)
        assert str(caught.value) == f"{place}: cannot read this file: No such file or directory"
    with pytest.raises(ConfigError, match=r": cannot read this file: Is a directory$"):
        load_config(tmp_path, {})


def test_a_threshold_may_stand_with_the_rest_of_similarity(tmp_path: Path) -> None:
    """`similarity.threshold` is `similarity_threshold`, in errors too; they must not say different things."""
    file = tmp_path / "callfuse.yaml"
    file.write_text("tool_call_loop:\n  similarity: {threshold: 0.85, metric: levenshtein_json}\n")
    loop = load_config(file, {}).tool_call_loop
    assert (loop.similarity_threshold, loop.similarity.algorithm) == (0.85, "levenshtein_json")
    assert load_config(file, {"CALLFUSE_SIMILARITY_THRESHOLD": "0.7"}).tool_call_loop.similarity_threshold == 0.7
    assert problems("tool_call_loop:\n  similarity:\n    threshold: 9\n", tmp_path) == [
        "tool_call_loop.similarity_threshold = 9 (callfuse.yaml, line 3): use a number above 0 to 1"
    ]
    twice = "tool_call_loop:\n  similarity_threshold: 0.9\n  similarity:\n    threshold: 0.8\n"
    assert problems(twice, tmp_path) == [
        "tool_call_loop.similarity_threshold: given twice (callfuse.yaml, line 2; callfuse.yaml, line 4); keep one"
    ]
    file.write_text(twice.replace("0.8", "0.9"))
    assert load_config(file, {}).tool_call_loop.similarity_threshold == 0.9


def test_a_model_may_have_longer_keys(tmp_path: Path) -> None:
    """Seed 000's names for what is different for a model, with their lines in errors."""
    file = tmp_path / "callfuse.yaml"
    text = """\
tool_call_loop:
  models:
    "openai:gpt-4o":
      tool_loop_detection_enabled: false
      tool_loop_detection_max_repeats: 5
      tool_loop_detection_ttl_seconds: 60
      tool_loop_detection_mode: break
"""
    file.write_text(text)
    loop = load_config(file, {}).tool_call_loop.for_exchange("openai:gpt-4o")
    assert (loop.enabled, loop.max_repeats, loop.ttl_seconds, loop.ladder) == (False, 5, 60, ("block",))
    assert problems(text.replace(": 5", ": 1"), tmp_path) == [
        "tool_call_loop.models.openai:gpt-4o.max_repeats = 1 (callfuse.yaml, line 5): use 0 (off) or a whole number"
        " from 2"
    ]
    assert problems(f"{text}      mode: warn\n", tmp_path) == [
        "tool_call_loop.models.openai:gpt-4o.mode: given twice (callfuse.yaml, line 7; callfuse.yaml, line 8); keep one"
    ]


IN_YAML = """\
tool_call_loop:
  enabled: true
  max_repeats: 4
  ttl_seconds: 600
  mode: "chance_then_block"
  similarity_threshold: 0.95
  similarity:
    algorithm: "jaccard"
    normalize_whitespace: false
    ignore_case: false
  error_messages:
    block: "Stopped."
    warning: "Again?"
  per_tool:
    search_web:
      max_repeats: 2
"""
IN_TOML = """\
[tool_call_loop]
enabled = true
max_repeats = 4
ttl_seconds = 600
mode = "chance_then_block"
similarity_threshold = 0.95

[tool_call_loop.similarity]
algorithm = "jaccard"
normalize_whitespace = false
ignore_case = false

[tool_call_loop.error_messages]
block = "Stopped."
warning = "Again?"

[tool_call_loop.per_tool.search_web]
max_repeats = 2
"""


def test_the_block_is_taken_as_it_stands_elsewhere(tmp_path: Path) -> None:
    """Seed 001's keys and spellings, the same in both formats; and seed 000's modes."""
    yaml, toml = tmp_path / "c.yaml", tmp_path / "c.toml"
    yaml.write_text(IN_YAML)
    toml.write_text(IN_TOML)
    config = load_config(yaml, {})
    assert config == load_config(toml, {})
    loop = config.tool_call_loop
    assert (loop.enabled, loop.max_repeats, loop.ttl_seconds, loop.similarity_threshold) == (True, 4, 600, 0.95)
    assert (loop.ladder, loop.for_tool("search_web").settings.max_repeats) == (("steer", "block"), 2)
    assert (loop.similarity.algorithm, loop.similarity.ignore_case) == ("jaccard", False)
    assert (loop.error_messages.block, loop.error_messages.warning) == ("Stopped.", "Again?")
    for mode in ("break", "chance", "chance_then_break", "block", "warn"):
        assert load_config({"tool_call_loop": {"mode": mode}}, {}).tool_call_loop.ladder


def bomb(levels: int, *, merged: bool = False) -> str:
    """A file in which each level holds the one before ten times: 10 to the power of `levels` values."""
    if merged:
        lines = ["a0: &a0 {x: 1}"]
        lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, levels + 1)]
    else:
        lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels + 1))]
    return "\n".join(lines)


@pytest.mark.parametrize("value", ["2020-99-99", "!!float x", "!!timestamp x", "!!int ''", "9" * 5000])
def test_a_date_or_a_number_that_is_none_is_a_problem(value: str) -> None:
    """PyYAML raises errors of other kinds for these."""
    (problem,) = parse(f"serve: {value}\n", "callfuse.yaml").problems
    assert problem.startswith("callfuse.yaml: this is not valid YAML: ")


@pytest.mark.parametrize("merged", [False, True])
def test_aliases_that_multiply_are_refused(*, merged: bool) -> None:
    """Some hundred bytes would be more values than any memory holds; nothing of them is made."""
    text = bomb(60, merged=merged)
    assert parse(text, "c.yaml").problems == ["c.yaml: its aliases repeat more than 10,000 values; write them out"]


def test_aliases_that_share_an_entry_are_fine(tmp_path: Path) -> None:
    """A thousand tools with the settings of one."""
    lines = ["tool_call_loop:", "  per_tool:", "    a: &a {max_repeats: 5}", *(f"    b{n}: *a" for n in range(1000))]
    file = tmp_path / "callfuse.yaml"
    file.write_text("\n".join(lines))
    loop = load_config(file, {}).tool_call_loop
    assert len(loop.per_tool) == 1001
    assert {one.max_repeats for one in loop.per_tool.values()} == {5}
