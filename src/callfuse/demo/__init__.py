"""Run the demo: an agent and a scripted model that loops, without and with callfuse. Needs `callfuse[demo]`.

agent      the question, the tool, the scripted model, and a tool loop on the OpenAI SDK
story      what happened, as data
servers    `callfuse serve` as a separate process, and its log
guests     more agents, for the live page
page       the live page of the guard, in a browser
play       both runs, from servers to summary
stages     the story as plain lines, or in two live columns
"""
