#!/usr/bin/env bash
# Writes the flower photos as TFRecords to DATA_DIR, 3,170 for training and 500 for validation:
#   bash scripts/download_and_preprocess_flowers.sh DATA_DIR [flags of slim_data.build_image_data]
# Downloads flower_photos.tgz to DATA_DIR if missing. Run it again to resume.
set -euo pipefail
DATA_DIR="${1:?DATA_DIR, the folder to work in, is missing}"
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
"$PYTHON" -m slim_data.prepare_flowers "$DATA_DIR"
exec "$PYTHON" -m slim_data.build_image_data \
  --train_directory "$DATA_DIR/raw-data/train" \
  --validation_directory "$DATA_DIR/raw-data/validation" \
  --labels_file "$DATA_DIR/raw-data/labels.txt" \
  --output_directory "$DATA_DIR" \
  "${@:2}"
