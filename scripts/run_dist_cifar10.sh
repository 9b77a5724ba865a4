#!/usr/bin/env bash
# Trains CifarNet on CIFAR-10 with two workers and a parameter server on this machine:
#   bash scripts/run_dist_cifar10.sh [flags of the training program]
# Each value may be set in the environment: GRAD_BITS=1 bash scripts/run_dist_cifar10.sh
# Run it again to resume; Ctrl-C stops all. Logs are ROOT_WORKSPACE/<number>.log. Each worker reads its own half of
# CIFAR-10, which one command makes from a conversion with --shard True:
#   bash scripts/split_dataset.sh ~/dataset/cifar10-shard-data 2 all --link_as ~/dataset/cifar10-data-shard
# If DATA_DIR_0 and DATA_DIR_1 hold the same files instead, the workers share them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

: "${ROOT_WORKSPACE:=$HOME/tmp/cifar10_info}"
: "${TRAIN_DIR:=/tmp/cifar10_distributed_train}"
: "${PS_HOSTS:=localhost:2222}"
: "${WORKER_HOSTS:=localhost:2224,localhost:2226}"
: "${DATA_DIR_0:=$HOME/dataset/cifar10-data-shard-0-499}"
: "${DATA_DIR_1:=$HOME/dataset/cifar10-data-shard-500-999}"
: "${DEVICE_0=0}"
: "${DEVICE_1=1}"
: "${TRAIN_BATCH_SIZE:=64}"
: "${MAX_STEPS:=300000}"
: "${BASE_LR:=0.0002}"
: "${NUM_EPOCHS_PER_DECAY:=200}"
: "${WEIGHT_DECAY:=0.004}"
: "${GRAD_BITS:=32}"
: "${CLIP_FACTOR:=0.0}"
: "${SEED:=123}"

for variable in DATA_DIR_0 DATA_DIR_1; do
  if [[ ! -d "${!variable}" ]]; then
    echo "run_dist_cifar10.sh: \`$variable\` must be a folder that exists. Received:" \
      "$variable=${!variable}. Of CIFAR-10 converted with --shard True," \
      "bash scripts/split_dataset.sh ~/dataset/cifar10-shard-data 2 all --link_as" \
      "~/dataset/cifar10-data-shard makes both" >&2
    exit 2
  fi
done
exec "$PYTHON" -m terngrad_tf run \
  --worker-hosts "$WORKER_HOSTS" \
  --ps-hosts "$PS_HOSTS" \
  --each "CUDA_VISIBLE_DEVICES=$DEVICE_0" --each "CUDA_VISIBLE_DEVICES=$DEVICE_1" \
  --each "DATA_DIR=$DATA_DIR_0" --each "DATA_DIR=$DATA_DIR_1" \
  --log-dir "$ROOT_WORKSPACE" \
  bash -c 'exec "$0" -m terngrad_tf.bin.cifar10_distributed_train --data_dir "${DATA_DIR:-}" "$@"' "$PYTHON" \
  --train_dir "$TRAIN_DIR" \
  --batch_size "$TRAIN_BATCH_SIZE" \
  --max_steps "$MAX_STEPS" \
  --optimizer adam \
  --initial_learning_rate "$BASE_LR" \
  --num_epochs_per_decay "$NUM_EPOCHS_PER_DECAY" \
  --image_size 24 \
  --weight_decay "$WEIGHT_DECAY" \
  --grad_bits "$GRAD_BITS" \
  --clip_factor "$CLIP_FACTOR" \
  --seed "$SEED" \
  "$@"
