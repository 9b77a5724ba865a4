#!/usr/bin/env bash
# Links one worker's part of the training files into the folder DATA_DIR/worker_<id>_of_<num>:
#   bash scripts/split_dataset.sh DATA_DIR WORKER_NUM WORKER_ID
#   bash scripts/split_dataset.sh ~/dataset/imagenet-data 16 1   # the second 64 of 1,024 files
#   bash scripts/split_dataset.sh DATA_DIR 2 all --link_as PATH  # PATH-0-499 and PATH-500-999
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
exec "$PYTHON" -m slim_data.split "$@"
