# Sourced by the other scripts: creates or reuses the checkout's virtual environment and exports
# PYTHON (its interpreter) and ROOT (the checkout).
#
#   PYTHON3            interpreter to create it with         (default: python3)
#   TERNGRAD_VENV      path of the environment               (default: <checkout>/.venv)
#   TERNGRAD_REQUIRE   further pip requirements, e.g. "tensorflow==2.18.*"  (default: none)

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export ROOT

terngrad_venv() {
  local python3="${PYTHON3:-python3}"
  local venv="${TERNGRAD_VENV:-$ROOT/.venv}"
  local -a require
  read -r -a require <<<"${TERNGRAD_REQUIRE:-}"

  if ! command -v "$python3" >/dev/null; then
    echo "venv.sh: no interpreter named '$python3' found; install Python 3.10 to 3.13 or set PYTHON3" >&2
    return 1
  fi
  if ! "$python3" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'; then
    echo "venv.sh: Python must be 3.10 to 3.13. Received: $("$python3" --version 2>&1)" \
      "($(command -v "$python3")); set PYTHON3 to another interpreter" >&2
    return 1
  fi
  local stamp="$venv/.terngrad_installed" key
  # Exists during the installation, since pip's interrupted installations look complete.
  local unfinished="${venv%/}.unfinished"
  if [[ -s "$unfinished" ]]; then
    echo "venv.sh: an earlier installation into $venv was interrupted, and this script did not make that" \
      "environment; make it anew and remove $unfinished" >&2
    return 1
  elif [[ -e "$unfinished" ]]; then
    echo "== an earlier installation into $venv was interrupted; making it anew" >&2
  elif [[ -e "$venv" && ! -f "$venv/pyvenv.cfg" && -n "$(ls -A "$venv")" ]]; then
    echo "venv.sh: $venv exists and is no virtual environment; move it away or set TERNGRAD_VENV" >&2
    return 1
  fi

  # An environment without its interpreter is also created anew.
  if [[ -e "$unfinished" ]] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if ! "$python3" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "venv.sh: $python3 lacks the venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2
      return 1
    fi
    echo "== making the virtual environment $venv ($("$python3" --version 2>&1))" >&2
    mkdir -p "$(dirname "$venv")" && : >"$unfinished" || return 1
    "$python3" -m venv --clear "$venv" || return 1
  fi

  key="$("$venv/bin/python" - "$ROOT" "${TERNGRAD_REQUIRE:-}" <<'PY'
import hashlib, pathlib, sys
root, require = sys.argv[1:]
parts = [sys.version, root, require]
parts.append((pathlib.Path(root) / "pyproject.toml").read_text())
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PY
  )" || return 1
  if [[ "$(cat "$stamp" 2>/dev/null)" != "$key" ]]; then
    echo "== installing terngrad_tf and what it needs into $venv (once; a few minutes)" >&2
    if [[ -e "$stamp" || -e "$unfinished" ]]; then
      : >"$unfinished" || return 1
    else
      # Not created by this script, so never cleared.
      echo "$venv was made by somebody else" >"$unfinished" || return 1
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
      --editable "$ROOT[dev]" ${require[@]+"${require[@]}"} || {
      echo "venv.sh: installation into $venv failed; the message above says why. The next run starts anew" >&2
      return 1
    }
    echo "$key" >"$stamp"
    rm -f "$unfinished"
  else
    echo "== using the virtual environment $venv"
  fi
  export PYTHON="$venv/bin/python"
}

# Scripts that start concurrently wait for one another, if the system has locks.
if command -v flock >/dev/null; then
  exec 9>>"$ROOT/.venv.lock" || exit 1
  flock 9
  terngrad_venv || exit 1
  exec 9>&-
else
  terngrad_venv || exit 1
fi
