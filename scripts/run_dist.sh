#!/usr/bin/env bash
# Starts all workers and parameter servers of config_dist.sh on their hosts, over ssh with a key:
#   bash scripts/run_dist.sh
#   DRY_RUN=1 bash scripts/run_dist.sh           # prints every command, runs none
#   EXPERIMENT_ID=name bash scripts/run_dist.sh  # names logs and folders; default: the date
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"
launch
