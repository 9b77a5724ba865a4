#!/usr/bin/env bash
# Stops a job of a run_single script on this host:
#   bash scripts/stop_single.sh JOB_NAME TASK_ID [EXPERIMENT_ID]   # default: of all experiments
source "$(dirname "${BASH_SOURCE[0]}")/start_single.sh"
if (($# < 2 || $# > 3)); then
  echo "Illegal number of parameters; usage: $0 JOB_NAME TASK_ID [EXPERIMENT_ID]" >&2
  exit 2
fi
IFS=
stop_jobs "$HOME"/tmp/*_info/${3:-*}"_$1_$2.log.pid"
