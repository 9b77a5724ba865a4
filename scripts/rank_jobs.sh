# Sourced by run_stage_1.sh and run_stage_2.sh: runs one process, or one per device of a rank table.
#
#   RANK_TABLE_FILE   rank table (JSON); without it one process runs, with all GPUs
#   SERVER_ID         this machine's server_id in the table (default: found by its addresses)
#   PORT              TCP port of the first process        (default: 2222)
#
# Each machine of a table runs the script, which starts the processes of its own devices. Process N sees the
# GPU of its device_id, unless CUDA_VISIBLE_DEVICES is set; its log is device<N>_<stage>/train.log.
source "$(dirname "${BASH_SOURCE[0]}")/local_jobs.sh"
: "${RANK_TABLE_FILE:=}" "${SERVER_ID:=}" "${PORT:=2222}"
if [[ -n "$RANK_TABLE_FILE" ]]; then
  : "${NUM_GPUS:=1}" "${NUM_NODES:=1}"
fi

# run_ranks STAGE MODULE FLAG...
run_ranks() {
  local stage="$1" module="$2" ranks rank device hosts folder shown=
  shift 2
  if [[ -z "$RANK_TABLE_FILE" ]]; then
    exec "$PYTHON" -m "$module" "$@"
  fi
  ranks="$("$PYTHON" -m terngrad_tf.bin.jobs.local_ranks --rank_table_file "$RANK_TABLE_FILE" \
    --server_id "$SERVER_ID" --port "$PORT")"
  while read -r rank device hosts; do
    folder="device${rank}_$stage"
    mkdir -p "$folder"
    start_local "$folder/train.log" \
      env CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-$device}" \
      "$PYTHON" -m "$module" "$@" --worker_hosts "$hosts" --task_id "$rank"
    : "${shown:=$folder/train.log}"
  done <<<"$ranks"
  wait_for_jobs "$shown"
}
