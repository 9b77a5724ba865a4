#!/usr/bin/env bash
# Starts one parameter server in the background; synchronous training needs none, so it ends at once:
#   bash scripts/run_single_ps_imagenet.sh PS_HOSTS WORKER_HOSTS ps TASK_ID EXPERIMENT_ID
# run_dist.sh starts it on every host of PS_HOSTS. start_single.sh says where its log is.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start_single.sh"

PROGRAM=imagenet
: "${DATASET_NAME:=imagenet}"

start_ps "$@"
