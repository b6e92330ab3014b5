"""Globs for well-known tool names: the defaults of settings that list tools."""

from typing import Final

POLLERS: Final = (
    "*wait*",
    "*poll*",
    "*sleep*",
    "*_job_status",
    "get_task_status",
    "write_stdin",
    "bashoutput",
    "taskoutput",
    "monitor",
)
"""Tools that are meant to be called again and again. Not `*status*`, which matches tools that only read."""
SCREEN_TOOLS: Final = (
    "computer",
    "computer_*",
    "*browser_*",
    "*click*",
    "drag*",
    "*keypress*",
    "*mouse*",
    "*press_key*",
    "redo",
    "*screenshot*",
    "*scroll*",
    "*send_keys*",
    "swipe*",
    "tap",
    "type_text",
    "undo",
    "volume_*",
    "*zoom*",
)
"""Tools of computer use, browsers and phones."""
PERSON_TOOLS: Final = (
    "*ask_followup*",
    "*ask_human*",
    "*ask_question*",
    "*ask_user*",
    "*askuser*",
    "*human_input*",
    "*request_user_input*",
    "*user_input",
)
"""Tools whose results are answers of a person."""
NOTE_TOOLS: Final = (
    "add_note",
    "add_observations",
    "manage_todo*",
    "memory_add",
    "memory_save",
    "memory_store",
    "memory_write",
    "*report_progress",
    "save_memory",
    "save_note",
    "*sequential*thinking",
    "store_memory",
    "take_note*",
    "taskcreate",
    "taskupdate",
    "think",
    "*todo_write",
    "*todowrite",
    "*update_plan",
    "update_memory",
    "*update_todo*",
    "write_note*",
    "*write_todos",
)
"""Tools by which an agent writes down what it thinks, plans or remembers."""
