#!/usr/bin/env bash
# Trains AlexNet on ImageNet by TernGrad with eight workers and evaluates it in parallel.
#   bash scripts/run_multi_gpus_alexnet.sh [flags of the training program]
# Each value may be set in the environment: GRAD_BITS=32 bash scripts/run_multi_gpus_alexnet.sh
# train_and_eval.sh explains the values, where results go, and how to resume a stopped experiment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
source "$ROOT/scripts/train_and_eval.sh"

PROGRAM=imagenet
DATASET_NAME=imagenet
: "${ROOT_WORKSPACE:=$HOME/dataset/results/imagenet}"
: "${DATA_DIR:=$HOME/dataset/imagenet-data}"
: "${NUM_GPUS:=8}"
: "${NUM_NODES:=8}"
: "${NET:=alexnet}"
: "${IMAGE_SIZE:=224}"
: "${OPTIMIZER:=momentum}"
: "${BASE_LR:=0.04}"
: "${LR_DECAY_TYPE:=exponential}"
: "${NUM_EPOCHS_PER_DECAY:=20}"
: "${GRAD_BITS:=1}"
: "${CLIP_FACTOR:=2.5}"
: "${WEIGHT_DECAY:=0.0005}"
: "${DROPOUT_KEEP_PROB:=0.8}"
: "${SIZE_TO_BINARIZE:=9217}"
: "${TRAIN_BATCH_SIZE:=1024}"
: "${MAX_STEPS:=92500}"
: "${VAL_BATCH_SIZE:=50}"
: "${EVAL_SUBSET:=validation}"
: "${EVAL_INTERVAL_SECS:=900}"

train_and_eval "$@"
