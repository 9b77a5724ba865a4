#!/usr/bin/env bash
# Checks style and types, and warns of phrases; `bash scripts/lint.sh --fix` also repairs style.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$ROOT"
if [[ "${1:-}" == "--fix" ]]; then
  "$PYTHON" -m ruff check --fix .
  exec "$PYTHON" -m ruff format .
fi
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" tools/prose.py
exec "$PYTHON" -m basedpyright --pythonpath "$PYTHON"
