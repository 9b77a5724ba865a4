#!/usr/bin/env bash
# Starts all workers and parameter servers of config_dist.sh on their hosts, over ssh with a key, and returns:
#   bash scripts/run_dist.sh
#   DRY_RUN=1 bash scripts/run_dist.sh           # prints every command, runs none
#   EXPERIMENT_ID=name bash scripts/run_dist.sh  # names logs and folders; default: the date
#   GRAD_BITS=1 bash scripts/run_dist.sh         # a value of start_single.sh, on all hosts
# The lines of all processes are in $HOME/tmp/dist_info/<experiment>.log on this host; if one fails, all end.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start_single.sh"
source "${DIST_CONFIG:-$ROOT/scripts/config_dist.sh}"
: "${EXPERIMENT_ID:=$(date +%Y-%m-%d_%H-%M-%S)}"
cd "$WORKSPACE"
OPTIONS=()
if [[ "${DRY_RUN:-0}" != 0 ]]; then OPTIONS=(--dry-run); fi
for name in "${VALUES[@]}"; do
  if [[ -n "${!name+set}" ]]; then OPTIONS+=(--env "$name=${!name}"); fi
done
IFS=,
# A host without .venv makes it when its script starts, so another Python starts the script.
PYTHONPATH="$WORKSPACE" exec "$PYTHON" -m terngrad_tf run ${OPTIONS[@]+"${OPTIONS[@]}"} \
  --background "$HOME/tmp/dist_info/$EXPERIMENT_ID.log" \
  --python "${PYTHON3:-python3}" \
  --ssh "${SSH_CONFIG:+-F ${SSH_CONFIG@Q}}" \
  --worker-hosts "${WORKER_HOSTS[*]}" \
  --ps-hosts "${PS_HOSTS[*]-}" \
  "${WORKER_DEVICES[@]/#/--each=DEVICE=}" \
  "${DATA_DIR[@]/#/--each=DATA_DIR=}" \
  bash scripts/dist_job.sh "$WORKER_SCRIPT" "$PS_SCRIPT" "${PS_HOSTS[*]-}" "${WORKER_HOSTS[*]}" "$EXPERIMENT_ID"
