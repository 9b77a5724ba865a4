#!/usr/bin/env bash
# Starts one worker that trains CifarNet on CIFAR-10, in the background:
#   bash scripts/run_single_worker_cifarnet.sh PS_HOSTS WORKER_HOSTS worker TASK_ID DEVICE DATA_DIR EXPERIMENT_ID
# run_dist.sh starts it on every host. start_single.sh explains the values and where results go.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start_single.sh"

PROGRAM=cifar10
: "${DATASET_NAME:=cifar10}"
: "${NET:=cifar10_alexnet}"
: "${IMAGE_SIZE:=24}"
: "${OPTIMIZER:=adam}"
: "${BASE_LR:=0.0002}"
: "${NUM_EPOCHS_PER_DECAY:=200}"
: "${WEIGHT_DECAY:=0.004}"
: "${TRAIN_BATCH_SIZE:=64}"
: "${MAX_STEPS:=300000}"

start_worker "$@"
