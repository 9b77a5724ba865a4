#!/usr/bin/env bash
# Starts one worker that trains AlexNet on ImageNet, in the background:
#   bash scripts/run_single_worker_alexnet.sh PS_HOSTS WORKER_HOSTS worker TASK_ID DEVICE DATA_DIR EXPERIMENT_ID
# run_dist.sh starts it on every host. start_single.sh explains the values and where results go.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start_single.sh"

PROGRAM=imagenet
: "${DATASET_NAME:=imagenet}"
: "${NET:=alexnet}"
: "${IMAGE_SIZE:=224}"
: "${OPTIMIZER:=momentum}"
: "${BASE_LR:=0.02}"
: "${NUM_EPOCHS_PER_DECAY:=20}"
: "${WEIGHT_DECAY:=0.0005}"
: "${SIZE_TO_BINARIZE:=9217}"
: "${TRAIN_BATCH_SIZE:=128}"
: "${MAX_STEPS:=185000}"

start_worker "$@"
