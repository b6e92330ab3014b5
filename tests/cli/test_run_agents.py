"""`callfuse run` with real agents, offline, in front of the scripted vendor: loops end, and the exit code tells.

They are installed with npm into `build/agents` where `CALLFUSE_HOSTS=1` asks for it; elsewhere the tests are skipped.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callfuse.testing import Answer, Call, ScriptedVendor, VendorRequest, served
from tests.cli.processes import CLEAN, PLAIN
from tests.hosts.environments import asked_for

FOLDER = Path(__file__).parents[2] / "build" / "agents"
INSTALL_S, RUN_S = 600, 120

pytestmark = [asked_for, pytest.mark.timeout(INSTALL_S + RUN_S)]


@dataclass(frozen=True)
class Agent:
    """An agent: its package, its program with arguments, its script to install a binary, its variables, the call that
    its model makes again and again, and a file of settings at home. `{url}` in a variable is the vendor's."""

    package: str
    command: tuple[str, ...]
    installs: str
    env: dict[str, str]
    call: Call
    settings: tuple[str, str] = ("", "")


AGENTS = {
    "claude": Agent(
        "@anthropic-ai/claude-code@2.1.197",
        ("claude", "-p", "List the files.", "--allowedTools", "Bash"),
        "install.cjs",
        {"ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        Call("Bash", {"command": "ls", "description": "List"}),
    ),
    "codex": Agent(
        "@openai/codex@0.169.0",
        ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "List the files."),
        "",
        {"CODEX_API_KEY": "none"},
        Call("update_plan", {"plan": [{"step": "list", "status": "in_progress"}]}),
    ),
    "opencode": Agent(
        "opencode-ai@1.18.33",
        ("opencode", "run", "-m", "anthropic/claude-haiku-4-5", "List the files."),
        "postinstall.mjs",
        {"ANTHROPIC_API_KEY": "none", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        Call("bash", {"command": "ls", "description": "List"}),
    ),
    "gemini": Agent(
        "@google/gemini-cli@0.61.0",
        ("gemini", "--skip-trust", "-m", "gemini-2.5-flash", "-p", "List the files."),
        "",
        {"GEMINI_API_KEY": "none"},
        Call("list_directory", {"dir_path": "nowhere"}),
        (".gemini/settings.json", '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'),
    ),
    "qwen": Agent(
        "@qwen-code/qwen-code@0.15.10",
        ("qwen", "--auth-type", "openai", "-p", "List the files."),
        "",
        {"OPENAI_API_KEY": "none", "OPENAI_MODEL": "qwen3-coder"},
        Call("list_directory", {"path": "nowhere"}),
    ),
    "copilot": Agent(
        "@github/copilot@1.0.102",
        ("copilot", "-p", "List the files.", "--allow-all-tools"),
        "",
        {"COPILOT_PROVIDER_BASE_URL": "{url}/v1", "COPILOT_MODEL": "gpt-4.1", "COPILOT_OFFLINE": "true"},
        Call("glob", {"pattern": "nowhere*"}),
    ),
}


def npm(*arguments: str) -> None:
    """Run npm, or skip."""
    found = shutil.which("npm")
    if found is None:
        pytest.skip("npm is not installed")
    try:
        done = subprocess.run(
            [found, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install the agents within {INSTALL_S} s")
    if done.returncode:
        pytest.skip(f"npm cannot install the agents: {done.stderr.strip()[-300:]}")


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the agents' programs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = dict(agent.package.rsplit("@", 1) for agent in AGENTS.values())
    (FOLDER / "package.json").write_text(json.dumps({"private": True, "dependencies": wanted}) + "\n", encoding="utf-8")
    npm("install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    for agent in AGENTS.values():
        place = FOLDER / "node_modules" / agent.package.rsplit("@", 1)[0]
        if agent.installs:
            subprocess.run(["node", agent.installs], cwd=place, capture_output=True, timeout=INSTALL_S, check=True)
    return FOLDER / "node_modules" / ".bin"


def run(agent: Agent, programs: Path, home: Path, script: Any) -> subprocess.CompletedProcess[str]:
    """The agent behind a guard, in a home without settings of anybody."""
    env = {**CLEAN, **PLAIN, **agent.env, "HOME": str(home), "CODEX_HOME": str(home)}
    env = {name: value for name, value in env.items() if not name.startswith("XDG_")}
    name, content = agent.settings
    if name:
        (home / name).parent.mkdir()
        (home / name).write_text(content, encoding="utf-8")
    command: Sequence[str] = [str(programs / agent.command[0]), *agent.command[1:]]
    with served(ScriptedVendor(script)) as url:
        env |= {name: value.replace("{url}", url) for name, value in agent.env.items()}
        return subprocess.run(
            [sys.executable, "-m", "callfuse", "run", "--upstream", url, "--", *command],
            env=env,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_s_loop_is_ended_and_told(programs: Path, tmp_path: Path, name: str) -> None:
    """The run is over after four calls, of which two were withheld, and the exit code is 3."""
    agent = AGENTS[name]

    def script(request: VendorRequest) -> Answer:
        is_title = name != "codex" and not request.body.get("tools")
        return Answer("A title") if is_title else Answer(calls=[agent.call])

    done = run(agent, programs, tmp_path, script)
    assert done.returncode == 3, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("callfuse:")]
    assert " of 1 session guarded, 4 calls: 1 loop found (2 findings), 2 calls withheld, about " in told[0]
    assert f"repeat of {agent.call.name}, 4 with a limit of 3: steer, then block (session " in told[1]
    assert "a block ended the run of 1 session" in told[2]
    assert "callfuse:" not in done.stdout


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_without_a_loop_is_left_alone(programs: Path, tmp_path: Path, name: str) -> None:
    """Its text comes on stdout, and the exit code is its own."""
    done = run(AGENTS[name], programs, tmp_path, lambda _: Answer("There are no files."))
    assert done.returncode == 0, done.stderr
    assert "There are no files." in done.stdout
    assert " guarded, 0 calls: no loop found\n" in done.stderr
