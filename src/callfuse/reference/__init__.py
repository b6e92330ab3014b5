"""Show and write settings for people: every key, a template file, a JSON schema, the settings in effect, and the edits
of `callfuse tune --write`. A process that only guards needs none of this."""
