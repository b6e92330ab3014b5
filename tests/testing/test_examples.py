"""The examples run as they stand."""

from examples import mount
from examples.test_agent import test_gets_out_of_a_loop, test_uses_the_tool
from openai import OpenAI

from callfuse.testing import served

__all__ = ["test_gets_out_of_a_loop", "test_uses_the_tool"]


def test_mount() -> None:
    """The mounted app answers through the fuse."""
    with served(mount.app) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Llamas?"}])
    calls = answer.model_dump()["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"query":"llamas"}']
