# Started by run_dist.sh on each host: its worker or parameter server.
#   bash scripts/dist_job.sh WORKER_SCRIPT PS_SCRIPT PS_HOSTS WORKER_HOSTS EXPERIMENT_ID
unset PYTHONPATH # of the Python that started this script
if [[ "$TERNGRAD_TF_JOB" == ps ]]; then
  exec bash "$2" "$3" "$4" ps "$TERNGRAD_TF_TASK" "$5"
fi
exec bash "$1" "$3" "$4" worker "$TERNGRAD_TF_TASK" "$DEVICE" "$DATA_DIR" "$5"
