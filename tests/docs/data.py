"""Reads blocks of data: settings by callfuse's own reader, files of other programs by what they ask of callfuse."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml

from callfuse.cli.agents import VENDORS
from callfuse.config import Config, load_config
from callfuse.config.versions import KEY
from tests.docs import given
from tests.docs.blocks import Block, blocks_of
from tests.docs.commands import commands_in, wrong_in
from tests.docs.hosted import hosts_run
from tests.docs.world import World
from tests.offline.reading import runs_in
from tests.project.sources import PROJECT
from tests.project.test_building import METADATA


def run_yaml(block: Block, world: World, folder: Path) -> None:
    """Each document of the block, by what it is."""
    documents = list(yaml.safe_load_all(block.text))
    for one in documents:
        checks = [check for is_one, check in KINDS if is_one(one)]
        assert checks, "nobody knows what this is: add it to `KINDS`"
        checks[0](one, block, world, folder)


def run_toml(block: Block, world: World, folder: Path) -> None:
    """Settings, or a part of a project's own file."""
    content = tomllib.loads(block.text)
    if is_settings(content):
        _settings(content, block, world, folder, suffix="toml")
    else:
        assert set(content) <= {"project", "dependency-groups"}, "nobody knows what this is"


def run_json(block: Block, world: World, folder: Path) -> None:
    """A recorded run, or a request's body, which the guard takes, or the settings of Claude Code."""
    content = json.loads(block.text)
    if set(content) == {"env"}:
        assert content["env"].keys() <= {name for vendor in VENDORS for name in vendor.variables}
        assert set(content["env"].values()) <= {url for url, place in given.ADDRESSES.items() if place == "guard"}
        return
    if "calls" in content:
        (folder / "run.json").write_text(block.text, encoding="utf-8")
        assert runs_in(str(folder / "run.json"))
    else:
        assert "messages" in content, "nobody knows what this is: add what prints it to `outputs.PRINTED`"
        world.send(content)


def run_ini(block: Block, world: World, folder: Path) -> None:
    """A unit of systemd: its command could run."""
    unit = ConfigParser(interpolation=None, strict=False)
    unit.read_string(block.text)
    for section in unit.sections():
        for key, value in unit[section].items():
            if key.startswith("exec"):
                line = re.sub(r"^[-@:+!]*\S*/(?=\w+)", "", value)
                assert [wrong_in(one) for one in commands_in(line)] == [""]


def run_dockerfile(block: Block, world: World, folder: Path) -> None:
    """Instructions that there are, and files that are there."""
    for line in block.text.replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        assert not word or word.startswith("#") or INSTRUCTIONS.fullmatch(word), line
        if word == "COPY" and "--from" not in rest:
            files = {one.file for one in blocks_of(block.page)} | {*given.FILES}
            assert all((PROJECT / name).exists() or name in files for name in rest.split()[:-1]), line


OUR_ACTION = "deploy/action"
INSTRUCTIONS = re.compile(
    r"ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|RUN|STOPSIGNAL|USER|VOLUME|WORKDIR"
)


def run_nginx(block: Block, world: World, folder: Path) -> None:
    """`tests/hosts/test_nginx.py` starts nginx with it; here its braces match and its lines end."""
    assert hosts_run(block)
    lines = [line.strip() for line in block.text.splitlines() if line.strip() and not line.startswith("#")]
    assert all(line[-1] in "{};" for line in lines)
    assert block.text.count("{") == block.text.count("}")


def is_settings(content: Any) -> bool:
    """Whether there are only keys that callfuse reads."""
    return isinstance(content, dict) and set(content) <= {KEY, *Config.model_fields}


def _settings(content: Any, block: Block, world: World, folder: Path, suffix: str = "yaml") -> None:
    """They are read without an error, and say something."""
    file = folder / f"settings.{suffix}"
    file.write_text(block.text, encoding="utf-8")
    assert load_config(file, {}) != load_config({}, {})


KEYS_OF_A_JOB = {"job_name", "metrics_path", "authorization", "scheme", "scrape_interval"}
KEYS_OF_A_JOB |= {"static_configs", "kubernetes_sd_configs", "relabel_configs"}


def _scrape(content: Any, block: Block, world: World, folder: Path) -> None:
    """Prometheus's: the guard has metrics where it looks, for the token, and without it none."""
    for job in content["scrape_configs"]:
        assert set(job) <= KEYS_OF_A_JOB
        assert job["authorization"]["type"] == "Bearer"
        assert world.get(job["metrics_path"]).status_code == 401
        answer = world.admin(job["metrics_path"].removeprefix("/_callfuse/"))
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")


def _probes(content: Any, block: Block, world: World, folder: Path) -> None:
    """Those of Kubernetes: the guard answers each without a token."""
    for probe in _found(content, "httpGet"):
        assert world.get(probe["path"]).status_code == 200
        assert probe["port"] in (8100, "http")


def _manifest(content: Any, block: Block, world: World, folder: Path) -> None:
    """Of Kubernetes, Compose and the like; `tests/deploy` lints them whole. Commands could run, probes are answered."""
    _probes(content, block, world, folder)
    for one in _found(content, "settings"):
        load_config(one, {})
    for words in [*_found(content, "command"), *_found(content, "args")]:
        line = " ".join(words) if isinstance(words, list) else str(words)
        if line.startswith(("callfuse ", "serve ")):
            line = line if line.startswith("callfuse ") else f"callfuse {line}"
            assert [wrong_in(one) for one in commands_in(line)] == [""]


def _litellm(content: Any, block: Block, world: World, folder: Path) -> None:
    """`tests/hosts/test_litellm.py` starts LiteLLM with it; here the guardrail that it asks is there."""
    assert hosts_run(block)
    for guardrail in content.get("guardrails", []):
        path = guardrail["litellm_params"]["api_base"].partition("8100")[2]
        assert world.get(path).status_code in (401, 405)


def _ray(content: Any, block: Block, world: World, folder: Path) -> None:
    """`tests/hosts` starts Ray Serve with it; here the files that it names are on the page."""
    assert hosts_run(block)
    files = {one.file for one in blocks_of(block.page)}
    for one in content["applications"]:
        ingress = one.get("args", {}).get("ingress_cls_config", {}).get("ingress_cls", "")
        modules = {path.partition(":")[0] for path in (one["import_path"], ingress) if path}
        assert {f"{module}.py" for module in modules - {"ray.serve.llm"}} <= files


def _workflow(content: Any, block: Block, world: World, folder: Path) -> None:
    """A workflow of GitHub: what it gives to our action, and takes from it, is there; shell commands could run."""
    action = yaml.safe_load((PROJECT / OUR_ACTION / "action.yml").read_text(encoding="utf-8"))
    steps = [step for job in content["jobs"].values() for step in job["steps"]]
    [ours] = [step for step in steps if step.get("uses", "").startswith(f"callfuse/callfuse/{OUR_ACTION}@")]
    assert ours["with"].keys() <= action["inputs"].keys()
    taken = set(re.findall(rf"steps\.{ours['id']}\.outputs\.([\w-]+)", block.text))
    assert taken
    assert taken <= action["outputs"].keys()


def _hooks(content: Any, block: Block, world: World, folder: Path) -> None:
    """What pre-commit is told: our hook is there, in our repository."""
    hooks = yaml.safe_load((PROJECT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    [repository] = content["repos"]
    assert repository["repo"] == METADATA["project"]["urls"]["Source"]
    assert {one["id"] for one in repository["hooks"]} == {one["id"] for one in hooks}


def _found(value: Any, key: str) -> Iterator[Any]:
    """Every value under a key, however deep."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _found(one, key)
    if isinstance(value, dict) and key in value:
        yield value[key]


def _has(*keys: str) -> Callable[[Any], bool]:
    return lambda content: isinstance(content, dict) and bool(content.keys() & set(keys))


Reader = Callable[[Any, Block, World, Path], None]
KINDS: list[tuple[Callable[[Any], bool], Reader]] = [
    (is_settings, _settings),
    (_has("scrape_configs"), _scrape),
    (_has("livenessProbe", "readinessProbe"), _probes),
    (_has("jobs"), _workflow),
    (_has("repos"), _hooks),
    (_has("apiVersion", "services", "replicaCount", "image"), _manifest),
    (_has("model_list", "guardrails"), _litellm),
    (_has("applications"), _ray),
]
"""How to tell what a YAML document is, and what is looked at."""
RUNNERS: Mapping[str, Callable[[Block, World, Path], None]] = {
    "yaml": run_yaml,
    "toml": run_toml,
    "json": run_json,
    "ini": run_ini,
    "dockerfile": run_dockerfile,
    "nginx": run_nginx,
}
"""By language."""
