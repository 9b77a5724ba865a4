#!/usr/bin/env bash
# Trains LeNet by TernGrad on scikit-learn's digits and evaluates it in parallel; needs no download.
#   bash scripts/run_digits.sh [flags of the training program]
# Each value may be set in the environment: NUM_NODES=8 bash scripts/run_digits.sh
# train_and_eval.sh explains the values, where results go, and how to resume a stopped experiment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
source "$ROOT/scripts/train_and_eval.sh"

PROGRAM=mnist
DATASET_NAME=digits
: "${ROOT_WORKSPACE:=$PWD/digits_output}"
: "${DATA_DIR:=$ROOT_WORKSPACE/data}"
: "${NUM_GPUS:=0}"
: "${NUM_NODES:=4}"
: "${NET:=lenet}"
: "${IMAGE_SIZE:=28}"
: "${OPTIMIZER:=momentum}"
: "${BASE_LR:=0.01}"
: "${LR_DECAY_TYPE:=polynomial}"
: "${GRAD_BITS:=1}"
: "${ROTATE:=True}"
: "${CLIP_FACTOR:=0.0}"
: "${WEIGHT_DECAY:=0.0005}"
: "${QUANTIZE_LOGITS:=True}"
: "${TRAIN_BATCH_SIZE:=64}"
: "${SAVE_ITER:=100}"
: "${LOG_FREQ:=50}"
: "${MAX_STEPS:=400}"
: "${VAL_BATCH_SIZE:=100}"
: "${EVAL_SUBSET:=test}"
: "${EVAL_INTERVAL_SECS:=1}"

mkdir -p "$ROOT_WORKSPACE"
"$PYTHON" -m slim_data.download_and_convert_data --dataset_name digits --dataset_dir "$DATA_DIR" \
  --shard True --train_shards 4
train_and_eval --log_freq "$LOG_FREQ" "$@"
