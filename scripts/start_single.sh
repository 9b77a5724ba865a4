# Sourced by the run_single scripts: starts one job of a cluster on this host in the background.
# Logs are in $HOME/tmp/<dataset>_info, pid files for stop_single.sh in $HOME/tmp/terngrad_pids.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh" >/dev/null

# start_job DATASET JOB TASK EXPERIMENT COMMAND...
start_job() {
  local dataset="$1" job="$2" task="$3" experiment="$4"
  shift 4
  exec "$PYTHON" -m terngrad_tf.bin.jobs.background start \
    --pid_file "$HOME/tmp/terngrad_pids/${experiment}_${job}_$task.pid" \
    --log_file "$HOME/tmp/${dataset}_info/${experiment}_${job}_$task.log" \
    -- "$@"
}
