#!/usr/bin/env bash
# Trains GoogLeNet on ImageNet with two workers and evaluates it in parallel.
#   bash scripts/run_multi_gpus_googlenet_quick.sh [flags of the training program]
# Each value may be set in the environment: GRAD_BITS=1 CLIP_FACTOR=2.5 bash scripts/run_multi_gpus_googlenet_quick.sh
# train_and_eval.sh explains the values, where results go, and how to resume a stopped experiment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
source "$ROOT/scripts/train_and_eval.sh"

export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0,1}"
PROGRAM=imagenet
DATASET_NAME=imagenet
: "${ROOT_WORKSPACE:=$HOME/dataset/results/imagenet}"
: "${DATA_DIR:=$HOME/dataset/imagenet-data}"
: "${NUM_GPUS:=2}"
: "${NUM_NODES:=2}"
: "${NET:=googlenet}"
: "${IMAGE_SIZE:=224}"
: "${OPTIMIZER:=momentum}"
: "${BASE_LR:=0.04}"
: "${LR_DECAY_TYPE:=polynomial}"
: "${GRAD_BITS:=32}"
: "${CLIP_FACTOR:=0.0}"
: "${WEIGHT_DECAY:=4e-05}"
: "${DROPOUT_KEEP_PROB:=0.8}"
: "${TRAIN_BATCH_SIZE:=128}"
: "${MAX_STEPS:=600000}"
: "${VAL_BATCH_SIZE:=25}"
: "${EVAL_SUBSET:=validation}"
: "${EVAL_INTERVAL_SECS:=1800}"

train_and_eval "$@"
