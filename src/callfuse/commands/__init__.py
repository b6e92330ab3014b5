"""In-chat commands: a user types them into a message to change the settings of a session.

request -> conversation: find the texts -> syntax: parse them -> run: new overrides for the session, and an answer
"""

from callfuse.commands.conversation import FoundCommands, PrefixSearch, find_commands
from callfuse.commands.run import CommandResult, run_commands
from callfuse.commands.syntax import Command, ParsedText, parse_commands

__all__ = [
    "Command",
    "CommandResult",
    "FoundCommands",
    "ParsedText",
    "PrefixSearch",
    "find_commands",
    "parse_commands",
    "run_commands",
]
