"""The tutorial works as it is written, from its first block to its last."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.tutorial import Reader, environment
from tests.docs.world import World

PAGE = "docs/tutorial.md"
NOWHERE = World("", "", "memory://")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial(tmp_path: Path) -> None:
    """Each step shows what it says; at its end the agent behind the proxy prints what it printed behind the app."""
    env = environment(NOWHERE.environment(tmp_path), tmp_path)
    del env["CALLFUSE_ADMIN_TOKEN"]
    with ExitStack() as stack:
        reader = Reader(tmp_path, env, stack)
        outputs = []
        for block in blocks_of(PAGE):
            reader.follow(block)
            if block.text == "python agent.py\n":
                outputs.append(reader.printed)
        agent = tmp_path / "agent.py"
        agent.write_text(agent.read_text().replace(reader.put("8000"), reader.put("8100")), encoding="utf-8")
        [last] = [block for block in blocks_of(PAGE) if block.text == "python agent.py\n"][-1:]
        reader.follow(last)
    assert len(outputs) == 4
    assert reader.printed == outputs[1] != outputs[0]


@pytest.mark.slow
def test_an_output_that_does_not_come_is_found(tmp_path: Path) -> None:
    """It is not enough that the commands run."""
    [block, *_] = [one for one in blocks_of(PAGE) if one.text.startswith("1 search_web")]
    with ExitStack() as stack, pytest.raises(AssertionError):
        Reader(tmp_path, {}, stack, printed="1 search_web").follow(block)
