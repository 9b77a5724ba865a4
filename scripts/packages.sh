# Sourced by bazel.sh, get_fashion_mnist.sh and .ci/run: installs system packages on Debian and its derivatives.

# install_packages PACKAGE...: installs packages with apt-get. Returns 1 with a message if this fails.
install_packages() {
  local root=()
  if [[ "$(id -u)" != 0 ]]; then
    root=(sudo -n)
  fi
  if ! command -v apt-get >/dev/null || ! ${root[@]+"${root[@]}"} true 2>/dev/null; then
    echo "packages.sh: installing $* needs apt-get and the right to use it" >&2
    return 1
  fi
  echo "== installing the system's packages $*"
  ${root[@]+"${root[@]}"} apt-get update -qq &&
    # Servers among the packages are not started.
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
      apt-get install -y -qq --no-install-recommends "$@" >/dev/null || {
    echo "packages.sh: installing $* failed; the message above says why" >&2
    return 1
  }
}
