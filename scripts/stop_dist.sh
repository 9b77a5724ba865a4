#!/usr/bin/env bash
# Stops the processes of run_dist.sh on the hosts of config_dist.sh, and nothing else:
#   bash scripts/stop_dist.sh
#   EXPERIMENT_ID=name bash scripts/stop_dist.sh  # that experiment only
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"
launch --stop
