#!/usr/bin/env bash
# The step of action.yml: runs COMMAND behind a guard, shows all that it prints, and hands on what came of it.
set -uo pipefail

log="$RUNNER_TEMP/callfuse.log"
said="$RUNNER_TEMP/callfuse.stderr"
options=(--log "$log")
if [ -n "${CONFIG:-}" ]; then options+=(--config "$CONFIG"); fi
if [ -n "${UPSTREAM:-}" ]; then options+=(--upstream "$UPSTREAM"); fi

exec 3>&1
callfuse run "${options[@]}" -- bash -eo pipefail -c "$COMMAND" 2>&1 >&3 | tee "$said" >&2
code=${PIPESTATUS[0]}
blocked=false
if [ "$code" = 3 ]; then blocked=true; fi

{
    echo "exit-code=$code"
    echo "blocked=$blocked"
    echo "log=$log"
} >> "$GITHUB_OUTPUT"
{
    echo '### callfuse'
    echo '```text'
    grep '^callfuse: ' "$said" || true
    echo '```'
} >> "$GITHUB_STEP_SUMMARY"

if [ "$blocked" = true ] && [ "${FAIL_ON_BLOCK:-true}" = false ]; then exit 0; fi
exit "$code"
