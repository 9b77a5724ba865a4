#!/usr/bin/env bash
# Builds the documentation's site into build/site; a broken link or anchor is an error.
#   bash scripts/docs.sh
#   bash scripts/docs.sh serve   # shows it at http://127.0.0.1:8000 and follows changes
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$ROOT"
export PYTHONPATH="$ROOT" NO_MKDOCS_2_WARNING=1
"$PYTHON" -m mkdocs "${@:-build}"
if (($# == 0)); then echo "== $ROOT/build/site/index.html"; fi
