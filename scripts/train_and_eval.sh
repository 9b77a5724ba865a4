# Sourced by the run_multi_gpus scripts, which set the values of an experiment: trains a network and, in
# parallel, evaluates its checkpoints as they appear, until both are done.
#
# Every value is a variable that the environment may set: GRAD_BITS=32 NUM_NODES=8 bash scripts/...
# Most are a flag of the training program in capitals (its --help explains them); BASE_LR is its
# --initial_learning_rate, LR_DECAY_TYPE its --learning_rate_decay_type, TRAIN_BATCH_SIZE its
# --batch_size. VAL_... and EVAL_... are flags of the evaluation program. Further arguments go to the
# training program. ROOT_WORKSPACE gets, for each experiment:
#
#   <dataset>_training_data/<experiment>              checkpoints and TensorBoard logs
#   <dataset>_eval_data/<experiment>                  TensorBoard logs of the evaluation
#   <dataset>_info/training_<experiment>_info.txt     output of the training
#   <dataset>_info/eval_<experiment>_info.txt         output of the evaluation
#
# EXPERIMENT is its name; pass the name of a stopped experiment to resume it.
# Ctrl-C stops both programs. The exit status is not 0 if either failed.

# Values that most experiments share.
shared_values() {
  : "${FINETUNED_MODEL_PATH:=}" # checkpoint to start from
  : "${LR_DECAY_TYPE:=exponential}"
  : "${NUM_EPOCHS_PER_DECAY:=20}"
  : "${MOMENTUM:=0.9}"
  : "${DROPOUT_KEEP_PROB:=0.5}"
  : "${SIZE_TO_BINARIZE:=1}"
  : "${QUANTIZE_LOGITS:=False}"
  : "${ROTATE:=False}" # the rule of TernGrad's paper
  : "${FLOATING_GRAD_EPOCH:=0}"
  : "${SAVE_ITER:=5000}"
  : "${SEED:=123}"
  : "${VAL_TOWER:=0}"
  : "${EVAL_DEVICE:=/gpu:0}"
  : "${RESTORE_AVG_VAR:=True}" # evaluate the moving averages of the weights
}

# Runs both programs; the arguments go to the training program.
train_and_eval() {
  shared_values
  local folder variable
  for variable in ROOT_WORKSPACE DATA_DIR; do
    folder="${!variable}"
    if [[ ! -d "$folder" ]]; then
      echo "$(basename "$0"): \`$variable\` must be a folder that exists. Received: $variable=$folder" >&2
      return 2
    fi
  done
  local date name
  date="$(date)"
  date="${date// /_}"
  name="${DATASET_NAME}_${NET}_${IMAGE_SIZE}_${OPTIMIZER}_${GRAD_BITS}_${BASE_LR}_${CLIP_FACTOR}"
  name+="_${FLOATING_GRAD_EPOCH}_${WEIGHT_DECAY}_${MOMENTUM}_${SIZE_TO_BINARIZE}"
  name+="_${TRAIN_BATCH_SIZE}_${NUM_NODES}_${date//:/-}"
  EXPERIMENT="${EXPERIMENT:-$name}"

  local root="${ROOT_WORKSPACE%/}/$DATASET_NAME"
  local train_dir="${root}_training_data/$EXPERIMENT" eval_dir="${root}_eval_data/$EXPERIMENT"
  local train_log="${root}_info/training_${EXPERIMENT}_info.txt"
  local eval_log="${root}_info/eval_${EXPERIMENT}_info.txt"
  mkdir -p "$train_dir" "$eval_dir" "${root}_info" || return 2
  echo "== experiment $EXPERIMENT"
  echo "== checkpoints in $train_dir"
  echo "== the evaluation prints to $eval_log"

  # Each program gets its own process group, so that Ctrl-C reaches it only through this script.
  set -m
  "$PYTHON" -m "terngrad_tf.bin.${PROGRAM}_eval" \
    --dataset_name "$DATASET_NAME" \
    --data_dir "$DATA_DIR" \
    --checkpoint_dir "$train_dir" \
    --eval_dir "$eval_dir" \
    --subset "$EVAL_SUBSET" \
    --net "$NET" \
    --image_size "$IMAGE_SIZE" \
    --batch_size "$VAL_BATCH_SIZE" \
    --max_steps "$MAX_STEPS" \
    --eval_interval_secs "$EVAL_INTERVAL_SECS" \
    --tower "$VAL_TOWER" \
    --device "$EVAL_DEVICE" \
    --restore_avg_var "$RESTORE_AVG_VAR" >>"$eval_log" 2>&1 </dev/null &
  EVAL_PID=$!
  "$PYTHON" -m "terngrad_tf.bin.${PROGRAM}_train" \
    --dataset_name "$DATASET_NAME" \
    --data_dir "$DATA_DIR" \
    --train_dir "$train_dir" \
    --net "$NET" \
    --image_size "$IMAGE_SIZE" \
    --batch_size "$TRAIN_BATCH_SIZE" \
    --max_steps "$MAX_STEPS" \
    --save_iter "$SAVE_ITER" \
    --optimizer "$OPTIMIZER" \
    --momentum "$MOMENTUM" \
    --initial_learning_rate "$BASE_LR" \
    --learning_rate_decay_type "$LR_DECAY_TYPE" \
    --num_epochs_per_decay "$NUM_EPOCHS_PER_DECAY" \
    --weight_decay "$WEIGHT_DECAY" \
    --dropout_keep_prob "$DROPOUT_KEEP_PROB" \
    --num_gpus "$NUM_GPUS" \
    --num_nodes "$NUM_NODES" \
    --grad_bits "$GRAD_BITS" \
    --rotate "$ROTATE" \
    --clip_factor "$CLIP_FACTOR" \
    --floating_grad_epoch "$FLOATING_GRAD_EPOCH" \
    --size_to_binarize "$SIZE_TO_BINARIZE" \
    --quantize_logits "$QUANTIZE_LOGITS" \
    --seed "$SEED" \
    --pretrained_model_checkpoint_path "$FINETUNED_MODEL_PATH" \
    "$@" >>"$train_log" 2>&1 </dev/null &
  TRAIN_PID=$!
  tail -n 0 -F "$train_log" 2>/dev/null &
  TAIL_PID=$!
  set +m
  trap 'stop_programs INT; exit 130' INT
  trap 'stop_programs TERM; exit 143' TERM HUP

  local train_status=0 eval_status=0
  wait "$TRAIN_PID" || train_status=$?
  if ((train_status)); then
    # Without further checkpoints, the evaluation would wait forever.
    stop_programs TERM
    echo "$(basename "$0"): the training failed with status $train_status: $(tail -n 1 "$train_log")" >&2
    return "$train_status"
  fi
  echo "== trained; waiting for the evaluation of the last checkpoint"
  wait "$EVAL_PID" || eval_status=$?
  stop_programs TERM
  if ((eval_status)); then
    echo "$(basename "$0"): the evaluation failed with status $eval_status: $(tail -n 1 "$eval_log")" >&2
    return "$eval_status"
  fi
  grep 'precision @ 1' "$eval_log" | tail -n 1
}

# Ends the programs of train_and_eval and waits for them.
stop_programs() {
  local second
  kill -s "$1" "$TRAIN_PID" 2>/dev/null || true
  kill -s "$1" "$EVAL_PID" 2>/dev/null || true
  # A library may swallow Python's exception for Ctrl-C: send SIGTERM after a while.
  for ((second = 0; second < 15; second++)); do
    kill -0 "$TRAIN_PID" 2>/dev/null || kill -0 "$EVAL_PID" 2>/dev/null || break
    sleep 1
  done
  kill -s TERM "$TRAIN_PID" "$EVAL_PID" 2>/dev/null || true
  wait "$TRAIN_PID" "$EVAL_PID" 2>/dev/null || true
  kill "$TAIL_PID" 2>/dev/null || true
  wait "$TAIL_PID" 2>/dev/null || true
}
