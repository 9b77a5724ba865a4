#!/usr/bin/env bash
# Trains CifarNet on CIFAR-10 by TernGrad with Adam and evaluates it in parallel.
#   bash scripts/run_multi_gpus_cifar10.sh [flags of the training program]
# Each value may be set in the environment: GRAD_BITS=32 bash scripts/run_multi_gpus_cifar10.sh
# train_and_eval.sh explains the values, where results go, and how to resume a stopped experiment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
source "$ROOT/scripts/train_and_eval.sh"

export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0,1}"
PROGRAM=cifar10
DATASET_NAME=cifar10
: "${ROOT_WORKSPACE:=$HOME/dataset/results/cifar10}"
: "${DATA_DIR:=$HOME/dataset/cifar10-data}"
: "${NUM_GPUS:=2}"
: "${NUM_NODES:=2}"
: "${NET:=cifar10_alexnet}"
: "${IMAGE_SIZE:=24}"
: "${OPTIMIZER:=adam}"
: "${BASE_LR:=0.0002}"
: "${NUM_EPOCHS_PER_DECAY:=200}"
: "${GRAD_BITS:=1}"
: "${CLIP_FACTOR:=2.5}"
: "${WEIGHT_DECAY:=0.004}"
: "${QUANTIZE_LOGITS:=True}"
: "${TRAIN_BATCH_SIZE:=128}"
: "${SAVE_ITER:=2000}"
: "${MAX_STEPS:=300000}"
: "${VAL_BATCH_SIZE:=50}"
: "${EVAL_SUBSET:=test}"
: "${EVAL_INTERVAL_SECS:=10}"

train_and_eval "$@"
