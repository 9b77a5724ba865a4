#!/usr/bin/env bash
# scripts/download_and_preprocess_flowers.sh, where Bazel makes a program of it.
set -euo pipefail
scripts="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../scripts"
exec bash "$scripts/download_and_preprocess_flowers.sh" "$@"
