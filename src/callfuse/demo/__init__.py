"""The demo: one scripted model that loops, one agent, run without and with callfuse. Needs `callfuse[demo]`.

scene      what is asked, what the tool finds, what the model does
story      what happened, as data
agent      a tool loop on the OpenAI SDK
servers    `callfuse serve` as a process of its own, and what it logs
play       both runs, from servers to summary
plain      the story as lines, for pipes and narrow terminals
live       the story in two columns, for terminals
"""
