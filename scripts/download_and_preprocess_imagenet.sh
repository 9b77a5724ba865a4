#!/usr/bin/env bash
# Writes ImageNet (ILSVRC 2012) as TFRecords to DATA_DIR, which must hold the official archives. With an
# account of image-net.org, missing archives (155 GB in all) are downloaded:
#   bash scripts/download_and_preprocess_imagenet.sh DATA_DIR [flags of slim_data.build_imagenet_data]
#   IMAGENET_USERNAME=name IMAGENET_ACCESS_KEY=key bash scripts/download_and_preprocess_imagenet.sh DATA_DIR
#   RAW_PIXEL=True RESIZE_DIMEN=256 bash scripts/download_and_preprocess_imagenet.sh DATA_DIR
# Run it again to resume. Needs 500 GB besides the archives.
set -euo pipefail
DATA_DIR="${1:?DATA_DIR, the folder with the archives of ILSVRC 2012, is missing}"
RAW_PIXEL="${RAW_PIXEL:-False}"
RESIZE_DIMEN="${RESIZE_DIMEN:-0}"
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
"$PYTHON" -m slim_data.prepare_imagenet "$DATA_DIR"
exec "$PYTHON" -m slim_data.build_imagenet_data \
  --train_directory "$DATA_DIR/raw-data/train" \
  --validation_directory "$DATA_DIR/raw-data/validation" \
  --labels_file "$DATA_DIR/raw-data/imagenet_lsvrc_2015_synsets.txt" \
  --imagenet_metadata_file "$DATA_DIR/raw-data/imagenet_metadata.txt" \
  --bounding_box_file "$DATA_DIR/raw-data/imagenet_2012_bounding_boxes.csv" \
  --output_directory "$DATA_DIR" \
  --raw_pixel "$RAW_PIXEL" \
  --resize_dimen "$RESIZE_DIMEN" \
  "${@:2}"
