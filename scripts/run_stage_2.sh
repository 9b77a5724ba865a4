#!/usr/bin/env bash
# Second phase of dimension-reduction training: trains the weights of the first phase in the subspace
# of its snapshots.
#   bash scripts/run_stage_2.sh DATA CHECKPOINT [PCA]
#   RANK_TABLE_FILE=rank_table_8pcs.json bash scripts/run_stage_2.sh DATA CHECKPOINT    (one process per device)
#   DATASET_NAME=digits bash scripts/run_stage_2.sh DIR device0_stage_1/checkpoint_stage_1
# DATA is as for run_stage_1.sh. CHECKPOINT is a result of that script: its folder, a checkpoint (also as
# resnet-70_625.ckpt, for epoch 70) or a snapshot. PCA is the file of a subspace (.npy or .safetensors);
# without it, the subspace is computed from the snapshots. Results go to device0_stage_2/checkpoint_stage_2
# in the current folder. Each value below may be set in the environment; the program's --help explains them.
# BOOST_CONFIG is its --boost_config, for values not set in the environment.
set -euo pipefail
usage() {
  echo "usage: bash $0 DATA CHECKPOINT [PCA]" >&2
  exit 2
}
[[ ($# -eq 2 || $# -eq 3) && -n "$1" && -n "$2" ]] || usage
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
source "$(dirname "${BASH_SOURCE[0]}")/rank_jobs.sh"

if [[ "${DATASET_NAME:=imagenet}" == digits ]]; then
  : "${BATCH_SIZE:=512}" "${NUM_GPUS:=0}" "${NUM_NODES:=4}"
  DATA="$1"
else
  DATA="$("$PYTHON" -m slim_data.find_records "$1")"
fi
: "${CHECKPOINT_DIR:=device0_stage_2/checkpoint_stage_2}" "${OPTIMIZER:=bfgs}"
: "${RESIDUAL_EVERY:=1}" "${SHARD_BASIS:=False}" "${BOOST_LEVEL:=O1}" "${BOOST_CONFIG:=}"
: "${EPOCHS:=2}" "${BATCH_SIZE:=2048}" "${NUM_GPUS:=8}"
: "${GRAD_BITS:=1}" "${CLIP_FACTOR:=2.5}" "${SEED:=1}"
if [[ -z "$BOOST_CONFIG" ]]; then
  : "${RHO:=0.55}" "${SIGMA:=0.4}" "${ALPHA:=0.001}" "${GAMMA:=0.9}" "${TIMEOUT:=1200}" "${NUM_NODES:=8}"
fi
PCA_MAT_PATH="${3:-}"
flags=()
for name in RHO SIGMA ALPHA GAMMA TIMEOUT NUM_NODES N_COMPONENTS WEIGHT_LOAD_DIR PCA_MAT_PATH START_AT; do
  [[ -z "${!name:-}" ]] || flags+=("--$(tr '[:upper:]' '[:lower:]' <<<"$name")" "${!name}")
done

run_ranks stage_2 terngrad_tf.bin.subspace_train \
  --data_dir "$DATA" \
  --dataset_name "$DATASET_NAME" \
  --pretrained_weight_path "$2" \
  --boost_config "$BOOST_CONFIG" \
  --boost_level "$BOOST_LEVEL" \
  --train_dir "$CHECKPOINT_DIR" \
  --optimizer "$OPTIMIZER" \
  --residual_every "$RESIDUAL_EVERY" \
  --shard_basis="$SHARD_BASIS" \
  --epochs "$EPOCHS" \
  --batch_size "$BATCH_SIZE" \
  --num_gpus "$NUM_GPUS" \
  --grad_bits "$GRAD_BITS" \
  --clip_factor "$CLIP_FACTOR" \
  --seed "$SEED" \
  ${flags[@]+"${flags[@]}"}
