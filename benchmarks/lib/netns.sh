#!/bin/bash
# Several hosts on one machine, joined by links of a chosen rate. Needs root, iproute2 (Debian).
#   netns.sh up PREFIX N RATE     hosts PREFIX0..PREFIX{N-1} at 10.77.0.1.., RATE like 100mbit, 1gbit or none
#   netns.sh down PREFIX N
# PREFIX: 1 to 6 letters; give each concurrent test its own PREFIX and subnet (SUBNET=10.78.0, default 10.77.0).
# Rates are token buckets (sch_tbf); for delays see delayed_links.py, as netem is not everywhere.
set -eu
subnet=${SUBNET:-10.77.0}
case $1 in
  up)
    prefix=$2 n=$3 rate=$4
    ip link add "${prefix}br" type bridge
    ip link set "${prefix}br" up
    for ((i = 0; i < n; i++)); do
      ip netns add "$prefix$i"
      # Made already: what delayed_links.py forwards from host to host.
      if ! ip link show "${prefix}e$i" >/dev/null 2>&1; then
        ip link add "${prefix}v$i" type veth peer name "${prefix}e$i"
        ip link set "${prefix}v$i" master "${prefix}br" up
        if [[ $rate != none ]]; then
          tc qdisc add dev "${prefix}v$i" root tbf rate "$rate" burst 256kb latency 100ms
        fi
      fi
      ip link set "${prefix}e$i" netns "$prefix$i"
      ip netns exec "$prefix$i" ip addr add "$subnet.$((i + 1))/24" dev "${prefix}e$i"
      ip netns exec "$prefix$i" ip link set "${prefix}e$i" up
      ip netns exec "$prefix$i" ip link set lo up
      if [[ $rate != none ]]; then
        ip netns exec "$prefix$i" tc qdisc add dev "${prefix}e$i" root tbf rate "$rate" burst 256kb latency 100ms
      fi
    done ;;
  down)
    prefix=$2 n=$3
    for ((i = 0; i < n; i++)); do
      # A namespace lives on while a process is in it; its link must not.
      ip link del "${prefix}v$i" || true
      ip netns del "$prefix$i" || true
    done
    ip link del "${prefix}b2" || true
    ip link del "${prefix}br" || true ;;
  *) echo "usage: $0 up|down PREFIX ..." >&2; exit 2 ;;
esac
