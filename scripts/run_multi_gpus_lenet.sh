#!/usr/bin/env bash
# Trains LeNet on MNIST with several workers and evaluates it in parallel.
#   bash scripts/run_multi_gpus_lenet.sh [flags of the training program]
# Each value may be set in the environment: GRAD_BITS=1 CLIP_FACTOR=2.5 bash scripts/run_multi_gpus_lenet.sh
# train_and_eval.sh explains the values, where results go, and how to resume a stopped experiment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
source "$ROOT/scripts/train_and_eval.sh"

export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0,1}"
PROGRAM=mnist
DATASET_NAME=mnist
: "${ROOT_WORKSPACE:=$HOME/dataset/results/mnist}"
: "${DATA_DIR:=$HOME/dataset/mnist-data}"
: "${NUM_GPUS:=2}"
: "${NUM_NODES:=4}"
: "${NET:=lenet}"
: "${IMAGE_SIZE:=28}"
: "${OPTIMIZER:=momentum}"
: "${BASE_LR:=0.01}"
: "${LR_DECAY_TYPE:=polynomial}"
: "${GRAD_BITS:=32}"
: "${CLIP_FACTOR:=0.0}"
: "${WEIGHT_DECAY:=0.0005}"
: "${QUANTIZE_LOGITS:=True}"
: "${TRAIN_BATCH_SIZE:=64}"
: "${SAVE_ITER:=200}"
: "${MAX_STEPS:=10000}"
: "${VAL_BATCH_SIZE:=100}"
: "${EVAL_SUBSET:=test}"
: "${EVAL_INTERVAL_SECS:=1}"

train_and_eval "$@"
