# Sourced by the run_single, run_dist and stop scripts: starts one job of a cluster on this host with flags
# made from the arguments and the values of an experiment, or stops jobs.
#
# Every value is a variable that the environment may set: GRAD_BITS=1 bash scripts/... run_dist.sh hands those
# that are set there, or in config_dist.sh, to all hosts.
# Most are a flag of the training program in capitals (its --help explains them); BASE_LR is its
# --initial_learning_rate, LR_DECAY_TYPE its --learning_rate_decay_type, TRAIN_BATCH_SIZE its
# --batch_size, the images per step of each process. ROOT_WORKSPACE gets (only worker 0 writes
# checkpoints) <dataset>_training_data/<experiment>_worker_<id>, checkpoints and TensorBoard logs. The
# job's lines go to $HOME/tmp/<dataset>_info/<experiment>_<job>_<id>.log. DEVICE is - for a worker on a CPU.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh" >/dev/null

# Values of a job, and of venv.sh.
VALUES=(
  DATASET_NAME NET IMAGE_SIZE TRAIN_BATCH_SIZE MAX_STEPS SEED ROOT_WORKSPACE FINETUNED_MODEL_PATH
  OPTIMIZER MOMENTUM BASE_LR LR_DECAY_TYPE NUM_EPOCHS_PER_DECAY WEIGHT_DECAY DROPOUT_KEEP_PROB
  GRAD_BITS CLIP_FACTOR FLOATING_GRAD_EPOCH SIZE_TO_BINARIZE ASYNC_TRAINING MAX_RESTARTS
  PYTHON3 TERNGRAD_VENV TERNGRAD_REQUIRE
)

# start_job DATASET JOB TASK EXPERIMENT COMMAND...: in the background, or as a process of run_dist.sh
start_job() {
  local log="$HOME/tmp/$1_info/$4_$2_$3.log"
  shift 4
  if [[ -z "${TERNGRAD_TF_JOB:-}" ]]; then
    exec "$PYTHON" -m terngrad_tf run --background "$log" -- "$@"
  fi
  mkdir -p "$(dirname "$log")"
  exec "$@" > >(exec tee -a "$log") 2> >(exec tee -a "$log" >&2)
}

# stop_jobs PID_FILE...: of `terngrad run --background`; a pattern without a file is left out
stop_jobs() {
  local file logs=()
  for file in "$@"; do
    if [[ -e "$file" ]]; then logs+=("${file%.pid}"); fi
  done
  if ((${#logs[@]})); then exec "$PYTHON" -m terngrad_tf stop "${logs[@]}"; fi
  echo "Stopped already."
}

# start_worker PS_HOSTS WORKER_HOSTS worker TASK_ID DEVICE DATA_DIR EXPERIMENT_ID
start_worker() {
  check_arguments "PS_HOSTS WORKER_HOSTS worker TASK_ID DEVICE DATA_DIR EXPERIMENT_ID" worker "$@"
  local device="$5" flags=()
  : "${ROOT_WORKSPACE:=$HOME/tmp}"
  if [[ "$device" == - ]]; then
    device=""
    flags=(--num_gpus 0)
  fi
  export CUDA_VISIBLE_DEVICES="$device"
  start_job "$DATASET_NAME" worker "$4" "$7" "$PYTHON" -m "terngrad_tf.bin.${PROGRAM}_distributed_train" \
    --ps_hosts "$1" \
    --worker_hosts "$2" \
    --job_name worker \
    --task_id "$4" \
    --data_dir "$6" \
    --train_dir "${ROOT_WORKSPACE%/}/${DATASET_NAME}_training_data/${7}_worker_$4" \
    --dataset_name "$DATASET_NAME" \
    --net "$NET" \
    --image_size "$IMAGE_SIZE" \
    --batch_size "$TRAIN_BATCH_SIZE" \
    --max_steps "$MAX_STEPS" \
    --optimizer "$OPTIMIZER" \
    --momentum "${MOMENTUM:-0.9}" \
    --initial_learning_rate "$BASE_LR" \
    --learning_rate_decay_type "${LR_DECAY_TYPE:-exponential}" \
    --num_epochs_per_decay "$NUM_EPOCHS_PER_DECAY" \
    --weight_decay "$WEIGHT_DECAY" \
    --dropout_keep_prob "${DROPOUT_KEEP_PROB:-0.5}" \
    --grad_bits "${GRAD_BITS:-32}" \
    --clip_factor "${CLIP_FACTOR:-0.0}" \
    --floating_grad_epoch "${FLOATING_GRAD_EPOCH:-0}" \
    --size_to_binarize "${SIZE_TO_BINARIZE:-1}" \
    --seed "${SEED:-123}" \
    --pretrained_model_checkpoint_path "${FINETUNED_MODEL_PATH:-}" \
    --async_training "${ASYNC_TRAINING:-False}" \
    --max_restarts "${MAX_RESTARTS:-0}" \
    ${flags[@]+"${flags[@]}"}
}

# start_ps PS_HOSTS WORKER_HOSTS ps TASK_ID EXPERIMENT_ID
start_ps() {
  check_arguments "PS_HOSTS WORKER_HOSTS ps TASK_ID EXPERIMENT_ID" ps "$@"
  export CUDA_VISIBLE_DEVICES=""
  start_job "$DATASET_NAME" ps "$4" "$5" "$PYTHON" -m "terngrad_tf.bin.${PROGRAM}_distributed_train" \
    --ps_hosts "$1" \
    --worker_hosts "$2" \
    --job_name ps \
    --task_id "$4" \
    --async_training "${ASYNC_TRAINING:-False}"
}

# check_arguments NAMES JOB ARGUMENT...: ends the script if the number of arguments and names differ.
check_arguments() {
  local names="$1" job="$2"
  shift 2
  if (($# != $(wc -w <<<"$names"))); then
    echo "Illegal number of parameters; usage: $0 $names" >&2
    exit 2
  fi
  if [[ "$3" != "$job" ]]; then
    echo "$(basename "$0"): \`JOB_NAME\` must be $job. Received: JOB_NAME=$3" >&2
    exit 2
  fi
}
