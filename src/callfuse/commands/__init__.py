"""In-chat commands: what a user types into a message to change the settings of a session.

request -> conversation -> texts -> syntax -> commands -> run -> the session's overrides, and what is said about it
"""

from callfuse.commands.conversation import Found, Mark, find
from callfuse.commands.run import Ran, run
from callfuse.commands.syntax import Command, Typed, read

__all__ = ["Command", "Found", "Mark", "Ran", "Typed", "find", "read", "run"]
