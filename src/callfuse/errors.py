"""All errors that callfuse raises, in one tree.

    CallFuseError
      ConfigError        a setting is unknown, does not parse or is out of range; raised at start only
      ToolLoopError      a looping call of an in-process agent was blocked, and raising was asked for (`inprocess`)

On the wire callfuse raises nothing: it fails open, logs and counts.
"""


def install_hint(extra: str) -> str:
    """How to install an extra of callfuse, for the end of a message: by name, or from a checkout of its source."""
    return f'pip install "callfuse[{extra}]", or in a checkout of callfuse: pip install ".[{extra}]"'


class CallFuseError(Exception):
    """The base class of every error that callfuse raises."""


class ConfigError(CallFuseError):
    """A setting is wrong. The message names the key, the value and what would be right."""
