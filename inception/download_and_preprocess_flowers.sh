#!/usr/bin/env bash
# scripts/download_and_preprocess_flowers.sh, as a Bazel program.
set -euo pipefail
scripts="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../scripts"
exec bash "$scripts/download_and_preprocess_flowers.sh" "$@"
