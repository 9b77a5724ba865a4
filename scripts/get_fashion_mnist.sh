#!/usr/bin/env bash
# Writes Fashion-MNIST as TFRecords to DIR, 60,000 images for training and 10,000 for testing:
#   bash scripts/get_fashion_mnist.sh DIR [flags of slim_data.download_and_convert_data]
#   python -m terngrad_tf.bin.mnist_train --dataset_name fashion_mnist --data_dir DIR --train_dir RUN
# Uses the official archives from Debian's package dataset-fashion-mnist, which is installed if apt-get is
# permitted; otherwise, they are downloaded to DIR. Either way their SHA-256 is checked. With
# --source tfds, tensorflow-datasets downloads and prepares them.
set -euo pipefail
DIR="${1:?DIR, the folder to write to, is missing}"
HERE="$(dirname "${BASH_SOURCE[0]}")"
: "${RAW_DIR:=/usr/share/datasets/fashion-mnist}" # the package's folder
source "$HERE/venv.sh"
source "$HERE/packages.sh"
flags=()
if [[ " ${*:2} " != *" --source"* ]]; then
  [[ -d "$RAW_DIR" ]] || install_packages dataset-fashion-mnist || echo "== downloading instead"
  [[ ! -d "$RAW_DIR" ]] || flags=(--raw_dir "$RAW_DIR" --source files)
fi
exec "$PYTHON" -m slim_data.download_and_convert_data --dataset_name fashion_mnist \
  --dataset_dir "$DIR" --shard True --train_shards 4 ${flags[@]+"${flags[@]}"} "${@:2}"
