#!/usr/bin/env bash
# First phase of dimension-reduction training: trains a network, by default ResNet-50 on ImageNet, and
# keeps weight snapshots.
#   bash scripts/run_stage_1.sh DATA
#   RANK_TABLE_FILE=rank_table_8pcs.json bash scripts/run_stage_1.sh DATA    (one process per device)
#   EPOCHS=50 SNAPSHOT_START_EPOCH=20 SNAPSHOT_PER_EPOCH=2 SNAPSHOT_KEEP_MAX=60 bash scripts/run_stage_1.sh DATA
#                                                  (60 snapshots: two per epoch from the 21st on)
#   NET=lenet DATASET_NAME=digits bash scripts/run_stage_1.sh DIR     (digits are written to DIR)
# DATA is a folder with TFRecords, or with images train/<class>/* and val/<class>/*, which are first written
# as TFRecords to DATA/tfrecords. The current folder gets device0_stage_1/checkpoint_stage_1 (checkpoints and
# TensorBoard logs) with checkpoint_pca in it (the snapshots). An existing run is resumed. Each value below
# may be set in the environment; the program's --help explains them.
set -euo pipefail
usage() {
  echo "usage: bash $0 DATA" >&2
  exit 2
}
[[ $# -eq 1 && -n "$1" ]] || usage
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
source "$(dirname "${BASH_SOURCE[0]}")/rank_jobs.sh"

: "${DATASET_NAME:=imagenet}"
if [[ "$DATASET_NAME" == digits ]]; then
  : "${NET:=lenet}" "${BATCH_SIZE:=64}" "${LR_MAX:=0.02}" "${MIXED_PRECISION:=False}"
  : "${EPOCHS:=21}" "${DECAY_EPOCHS:=27}" "${WARMUP_EPOCHS:=1}" "${SAVE_EPOCHS:=5}"
  : "${SNAPSHOT_PER_EPOCH:=2}" "${NUM_GPUS:=0}" "${NUM_NODES:=4}" "${LOG_FREQ:=50}"
  # Existing digits are used, in any number of files.
  if ! { compgen -G "$1/train-*" && "$PYTHON" -m slim_data.validate --dataset_name digits \
    --dataset_dir "$1"; } >/dev/null 2>&1; then
    "$PYTHON" -m slim_data.download_and_convert_data --dataset_name digits --dataset_dir "$1" \
      --shard True --train_shards 4
  fi
  DATA="$1"
else
  DATA="$("$PYTHON" -m slim_data.find_records "$1")"
fi
: "${LOG_FREQ:=}" "${NET:=resnet_50}" "${BATCH_SIZE:=2048}" "${LR_MAX:=0.8}" "${MIXED_PRECISION:=True}"
: "${EPOCHS:=70}" "${DECAY_EPOCHS:=90}" "${WARMUP_EPOCHS:=5}" "${SAVE_EPOCHS:=10}"
: "${SNAPSHOT_START_EPOCH:=0}" "${SNAPSHOT_PER_EPOCH:=1}" "${SNAPSHOT_KEEP_MAX:=40}" "${NUM_GPUS:=8}" "${NUM_NODES:=8}"
: "${GRAD_BITS:=32}" "${CLIP_FACTOR:=0.0}" "${LOSS_SCALE:=1024}" "${SEED:=1}"
: "${CHECKPOINT_DIR:=device0_stage_1/checkpoint_stage_1}"

run_ranks stage_1 terngrad_tf.bin.resnet50_imagenet_stage_1 \
  --data_dir "$DATA" \
  --dataset_name "$DATASET_NAME" \
  --net "$NET" \
  --train_dir "$CHECKPOINT_DIR" \
  --batch_size "$BATCH_SIZE" \
  --initial_learning_rate "$LR_MAX" \
  --epochs "$EPOCHS" \
  --decay_epochs "$DECAY_EPOCHS" \
  --warmup_epochs "$WARMUP_EPOCHS" \
  --save_epochs "$SAVE_EPOCHS" \
  --snapshot_start_epoch "$SNAPSHOT_START_EPOCH" \
  --snapshot_per_epoch "$SNAPSHOT_PER_EPOCH" \
  --snapshot_keep_max "$SNAPSHOT_KEEP_MAX" \
  --mixed_precision "$MIXED_PRECISION" \
  --loss_scale "$LOSS_SCALE" \
  --num_gpus "$NUM_GPUS" \
  --num_nodes "$NUM_NODES" \
  --grad_bits "$GRAD_BITS" \
  --clip_factor "$CLIP_FACTOR" \
  ${LOG_FREQ:+--log_freq "$LOG_FREQ"} \
  --seed "$SEED"
