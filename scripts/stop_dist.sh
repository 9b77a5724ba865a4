#!/usr/bin/env bash
# Stops what run_dist.sh started from this host, on all hosts, and nothing else:
#   bash scripts/stop_dist.sh
#   EXPERIMENT_ID=name bash scripts/stop_dist.sh  # that experiment only
source "$(dirname "${BASH_SOURCE[0]}")/start_single.sh"
IFS=
stop_jobs "$HOME"/tmp/dist_info/${EXPERIMENT_ID:-*}.log.pid
