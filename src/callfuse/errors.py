"""All errors that callfuse raises, in one tree.

    CallFuseError
      ConfigError        a setting is unknown, does not parse or is out of range; raised at start only
      ToolLoopError      a looping call of an in-process agent was blocked, and `on_block` is `raise` (`inprocess`)

For HTTP traffic callfuse raises nothing: it fails open, logs and counts.
"""


def install_hint(extra: str) -> str:
    """Return how to install an extra, as the end of a message: by name, or from a checkout of the source."""
    return f'pip install "callfuse[{extra}]", or in a checkout of callfuse: pip install ".[{extra}]"'


class CallFuseError(Exception):
    """The base class of every error that callfuse raises."""


class ConfigError(CallFuseError):
    """A setting is wrong. The message names the key, the value and what would be right."""
