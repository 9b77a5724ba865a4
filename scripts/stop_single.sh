#!/usr/bin/env bash
# Stops a job of a run_single script on this host:
#   bash scripts/stop_single.sh JOB_NAME TASK_ID [EXPERIMENT_ID]   # default: of all experiments
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh" >/dev/null
shopt -s nullglob
if (($# < 2 || $# > 3)); then
  echo "Illegal number of parameters; usage: $0 JOB_NAME TASK_ID [EXPERIMENT_ID]" >&2
  exit 2
fi
folder="$HOME/tmp/terngrad_pids"
if [[ -n "${3:-}" ]]; then
  files=("$folder/${3}_$1_$2.pid")
else
  files=("$folder"/*"_$1_$2.pid")
fi
if ((${#files[@]} == 0)); then
  echo "Stopped already."
  exit 0
fi
exec "$PYTHON" -m terngrad_tf.bin.jobs.background stop "${files[@]}"
