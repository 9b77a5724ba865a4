#!/usr/bin/env bash
# Trains LeNet on scikit-learn's digits with two workers on this machine that exchange ternary
# gradients, then evaluates it; needs no download.
#   bash scripts/run_dist_digits.sh [flags of the training program]
# Each value may be set in the environment: GRAD_BITS=32 bash scripts/run_dist_digits.sh
# Run it again to resume; Ctrl-C stops all.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

: "${ROOT_WORKSPACE:=$PWD/digits_distributed_output}"
: "${DATA_DIR:=$ROOT_WORKSPACE/data}"
: "${TRAIN_DIR:=$ROOT_WORKSPACE/train}"
: "${WORKER_HOSTS:=localhost:2224,localhost:2226}"
: "${NET:=lenet}"
: "${IMAGE_SIZE:=28}"
: "${TRAIN_BATCH_SIZE:=32}"
: "${MAX_STEPS:=400}"
: "${BASE_LR:=0.01}"
: "${LR_DECAY_TYPE:=polynomial}"
: "${GRAD_BITS:=1}"
: "${ROTATE:=True}"
: "${CLIP_FACTOR:=0.0}"
: "${SAVE_INTERVAL_SECS:=10}"
: "${LOG_FREQ:=50}"
: "${SEED:=123}"

mkdir -p "$ROOT_WORKSPACE"
"$PYTHON" -m slim_data.download_and_convert_data --dataset_name digits --dataset_dir "$DATA_DIR" \
  --shard True --train_shards 4
"$PYTHON" -m terngrad_tf run --worker-hosts "$WORKER_HOSTS" --log-dir "$ROOT_WORKSPACE" \
  -m terngrad_tf.bin.mnist_distributed_train \
  --dataset_name digits \
  --data_dir "$DATA_DIR" \
  --train_dir "$TRAIN_DIR" \
  --num_gpus 0 \
  --net "$NET" \
  --image_size "$IMAGE_SIZE" \
  --batch_size "$TRAIN_BATCH_SIZE" \
  --max_steps "$MAX_STEPS" \
  --initial_learning_rate "$BASE_LR" \
  --learning_rate_decay_type "$LR_DECAY_TYPE" \
  --grad_bits "$GRAD_BITS" \
  --rotate "$ROTATE" \
  --clip_factor "$CLIP_FACTOR" \
  --quantize_logits True \
  --save_interval_secs "$SAVE_INTERVAL_SECS" \
  --log_freq "$LOG_FREQ" \
  --seed "$SEED" \
  "$@"
"$PYTHON" -m terngrad_tf.bin.mnist_eval --data_dir "$DATA_DIR" --checkpoint_dir "$TRAIN_DIR" \
  --eval_dir "$ROOT_WORKSPACE/eval" --subset test --run_once
