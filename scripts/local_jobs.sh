# Sourced by run_dist_cifar10.sh and run_dist_digits.sh: runs the jobs of a cluster on this machine, each in
# its own process group, so that Ctrl-C reaches it only through the script.
JOB_PIDS=()
JOB_LOGS=()

# start_local LOG COMMAND...
start_local() {
  local log="$1"
  shift
  echo "== $log"
  set -m
  "$@" >>"$log" 2>&1 </dev/null &
  set +m
  JOB_PIDS+=($!)
  JOB_LOGS+=("$log")
}

# wait_for_jobs LOG: waits until all jobs have ended, and shows new lines of the log. If a job fails, ends
# the others and returns its status.
wait_for_jobs() {
  local status=0 job
  trap 'stop_jobs INT; exit 130' INT
  trap 'stop_jobs TERM; exit 143' TERM HUP
  tail -n 0 -F "$1" 2>/dev/null &
  TAIL_PID=$!
  while ((${#JOB_PIDS[@]} && !status)); do
    sleep 0.2
    for job in "${!JOB_PIDS[@]}"; do
      if ((status)) || kill -0 "${JOB_PIDS[job]}" 2>/dev/null; then continue; fi
      wait "${JOB_PIDS[job]}" || status=$?
      unset "JOB_PIDS[job]"
      if ((status)); then
        echo "$(basename "$0"): failed with status $status: $(tail -n 1 "${JOB_LOGS[job]}")" >&2
        # Each of the other jobs logs why it ends.
        wait_seconds 60
      fi
    done
  done
  stop_jobs TERM
  trap - INT TERM HUP
  return "$status"
}

# Ends the running jobs and waits for them.
stop_jobs() {
  local pid
  for pid in ${JOB_PIDS[@]+"${JOB_PIDS[@]}"}; do kill -s "$1" "$pid" 2>/dev/null || true; done
  wait_seconds 15
  for pid in ${JOB_PIDS[@]+"${JOB_PIDS[@]}"}; do
    kill -s KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  JOB_PIDS=()
  kill "$TAIL_PID" 2>/dev/null || true
  wait "$TAIL_PID" 2>/dev/null || true
}

# wait_seconds SECONDS: waits at most this long, while a job runs.
wait_seconds() {
  local tenth pid
  for ((tenth = 0; tenth < 10 * $1; tenth++)); do
    for pid in ${JOB_PIDS[@]+"${JOB_PIDS[@]}"}; do
      if kill -0 "$pid" 2>/dev/null; then
        sleep 0.1
        continue 2
      fi
    done
    return 0
  done
}
