#!/usr/bin/env bash
# A Ray cluster inside a Slurm allocation, one job on it, and nothing left behind:
#   sbatch --nodes=2 infra/slurm.sh preprocess model.yaml cluster.yaml
#   sbatch --nodes=2 --gpus-per-node=4 infra/slurm.sh train model.yaml cluster.yaml
# Later files override earlier ones. `output` and `data.store` lie on a file system that all nodes mount, or
# `data.store` and `storage.uri` in a bucket.
#SBATCH --job-name=cocn
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --exclusive
set -euo pipefail

stage=${1:?"usage: sbatch slurm.sh preprocess|train CONFIG [CONFIG ...]"}
: "${2:?"usage: sbatch slurm.sh preprocess|train CONFIG [CONFIG ...]"}"
port=${RAY_PORT:-6379}

# Other users may share the network of these nodes, so Ray asks for a token that only this job knows.
umask 077
token=$(mktemp "$HOME/.cocn-token.XXXXXX")
python -c 'import secrets; print(secrets.token_hex(32))' >"$token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token RAY_USAGE_STATS_ENABLED=0

pids=()
finish() {
  status=$?
  kill "${pids[@]}" 2>/dev/null || true
  wait || true
  rm -f "$token"
  exit "$status"
}
trap finish EXIT

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{ print $1 }')
share=(--num-cpus "${SLURM_CPUS_PER_TASK:-1}" --num-gpus "${SLURM_GPUS_ON_NODE:-0}" --disable-usage-stats --block)

start() { srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" ray start "${@:2}" "${share[@]}" & pids+=($!); }

start "$head" --head --node-ip-address="$address" --port="$port" --dashboard-host=127.0.0.1
until srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" ray health-check --address "$address:$port"; do
  kill -0 "${pids[0]}" || { echo "slurm.sh: Ray did not start on $head" >&2; exit 1; }
  sleep 2
done
for node in "${nodes[@]:1}"; do
  start "$node" --address="$address:$port"
done

# The driver waits until the nodes it needs have joined; the batch script runs on the first node.
RAY_ADDRESS=$address:$port python -m "jobs.$stage" "${@:2}"
