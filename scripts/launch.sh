# Sourced by run_dist.sh and stop_dist.sh: passes the values of config_dist.sh to the launcher.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh" >/dev/null
source "${DIST_CONFIG:-$ROOT/scripts/config_dist.sh}"
EXTRA=()
if [[ "${DRY_RUN:-0}" != 0 ]]; then EXTRA=(--dry_run); fi
launch() {
  exec "$PYTHON" -m terngrad_tf.bin.jobs.launch \
    "--workspace=$WORKSPACE" \
    "--worker_script=$WORKER_SCRIPT" \
    "--ps_script=$PS_SCRIPT" \
    "--ssh_config=$SSH_CONFIG" \
    "--experiment_id=${EXPERIMENT_ID:-}" \
    ${EXTRA[@]+"${EXTRA[@]}"} \
    "${PS_HOSTS[@]/#/--ps_host=}" \
    "${WORKER_HOSTS[@]/#/--worker_host=}" \
    "${WORKER_DEVICES[@]/#/--worker_device=}" \
    "${DATA_DIR[@]/#/--data_dir=}" \
    "$@"
}
