# Sourced by run_dist.sh and stop_dist.sh: the hosts of a cluster and their processes. Edit this file, or
# a copy named in DIST_CONFIG. See docs/ssh.md.

# The checkout, at the same path on every host.
WORKSPACE="$ROOT"

# Scripts in the checkout that start one worker and one parameter server on their host. Their arguments are
#   PS_HOSTS WORKER_HOSTS worker TASK_ID DEVICE DATA_DIR EXPERIMENT_ID
#   PS_HOSTS WORKER_HOSTS ps TASK_ID EXPERIMENT_ID
# and they start a program with `start_job` of start_single.sh. Edit or copy the scripts below;
# start_single.sh explains their values.
WORKER_SCRIPT="scripts/run_single_worker_cifarnet.sh" # or run_single_worker_alexnet.sh
PS_SCRIPT="scripts/run_single_ps_cifar10.sh" # or run_single_ps_imagenet.sh

# host:port, reachable from every host. Synchronous training needs no parameter server.
PS_HOSTS=()
WORKER_HOSTS=(localhost:2224 localhost:2226)
# GPUs of each worker as for CUDA_VISIBLE_DEVICES, such as 0 or 0,1; - for the CPU.
WORKER_DEVICES=(0 1)
# Folder of each worker's training files, on its host. If all folders hold the same files, workers share
# them. The following command makes these two from CIFAR-10 converted with --shard True:
#   bash scripts/split_dataset.sh ~/dataset/cifar10-shard-data 2 all --link_as ~/dataset/cifar10-data-shard
DATA_DIR=(~/dataset/cifar10-data-shard-0-499 ~/dataset/cifar10-data-shard-500-999)

# Configuration file for ssh, if users, ports or keys differ from ssh's defaults.
SSH_CONFIG=""
