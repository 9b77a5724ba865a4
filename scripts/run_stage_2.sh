#!/usr/bin/env bash
# Second phase of dimension-reduction training: trains the weights of the first phase in the subspace
# of its snapshots.
#   bash scripts/run_stage_2.sh DATA CHECKPOINT [PCA]
#   DATASET_NAME=digits bash scripts/run_stage_2.sh DIR checkpoint_stage_1
# DATA is a folder with the TFRecords, CHECKPOINT what run_stage_1.sh left: its folder, one of its
# checkpoints or one of its snapshots. PCA is the file of a subspace (.npy or .safetensors); without it
# the subspace is computed from the snapshots. Results go to checkpoint_stage_2 in the present folder.
# Each value below may be set in the environment; the program's --help explains them.
set -euo pipefail
usage() {
  echo "usage: bash $0 DATA CHECKPOINT [PCA]" >&2
  exit 2
}
[[ ($# -eq 2 || $# -eq 3) && -n "$1" && -n "$2" ]] || usage
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

if [[ "${DATASET_NAME:=imagenet}" == digits ]]; then
  : "${BATCH_SIZE:=512}" "${NUM_GPUS:=0}" "${NUM_NODES:=4}"
fi
: "${CHECKPOINT_DIR:=checkpoint_stage_2}" "${WEIGHT_LOAD_DIR:=}" "${TIMEOUT:=1200}"
: "${OPTIMIZER:=bfgs}" "${RHO:=0.55}" "${SIGMA:=0.4}" "${ALPHA:=0.0}" "${GAMMA:=0.9}"
: "${RESIDUAL_EVERY:=1}" "${SHARD_BASIS:=False}"
: "${EPOCHS:=2}" "${BATCH_SIZE:=2048}" "${NUM_GPUS:=8}" "${NUM_NODES:=8}"
: "${GRAD_BITS:=1}" "${CLIP_FACTOR:=2.5}" "${SEED:=1}"
components=()
[[ -z "${N_COMPONENTS:-}" ]] || components=(--n_components "$N_COMPONENTS")

exec "$PYTHON" -m terngrad_tf.bin.subspace_train \
  --data_dir "$1" \
  --dataset_name "$DATASET_NAME" \
  --pretrained_weight_path "$2" \
  --pca_mat_path "${3:-}" \
  --weight_load_dir "$WEIGHT_LOAD_DIR" \
  --timeout "$TIMEOUT" \
  ${components[@]+"${components[@]}"} \
  --train_dir "$CHECKPOINT_DIR" \
  --optimizer "$OPTIMIZER" \
  --rho "$RHO" \
  --sigma "$SIGMA" \
  --alpha "$ALPHA" \
  --gamma "$GAMMA" \
  --residual_every "$RESIDUAL_EVERY" \
  --shard_basis="$SHARD_BASIS" \
  --epochs "$EPOCHS" \
  --batch_size "$BATCH_SIZE" \
  --num_gpus "$NUM_GPUS" \
  --num_nodes "$NUM_NODES" \
  --grad_bits "$GRAD_BITS" \
  --clip_factor "$CLIP_FACTOR" \
  --seed "$SEED"
