# Sourced by run_stage_1.sh and run_stage_2.sh: runs one process, or one per device of a rank table.
#
#   RANK_TABLE_FILE   rank table (JSON); without it one process runs, with all GPUs
#   SERVER_ID         this machine's server_id in the table (default: found by its addresses)
#   PORT              TCP port of the first process        (default: 2222)
#
# Each machine of a table runs the script, which starts the processes of its own devices. Process N sees the
# GPU of its device_id, unless CUDA_VISIBLE_DEVICES is set; its log is device<N>_<stage>/train.log.
: "${RANK_TABLE_FILE:=}"
if [[ -n "$RANK_TABLE_FILE" ]]; then
  : "${NUM_GPUS:=1}" "${NUM_NODES:=1}"
fi

# run_ranks STAGE MODULE FLAG...
run_ranks() {
  local run=()
  if [[ -n "$RANK_TABLE_FILE" ]]; then
    run=(-m terngrad_tf run --rank-table "$RANK_TABLE_FILE" --server-id "${SERVER_ID:-}" --port "${PORT:-2222}"
      --log-dir "device{rank}_$1/train.log")
  fi
  exec "$PYTHON" ${run[@]+"${run[@]}"} -m "${@:2}"
}
