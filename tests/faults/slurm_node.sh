#!/usr/bin/env bash
# A SLURM cluster of this one machine, without systemd, as root: slurm_node.sh up | down
# Needs slurm-wlm and munge (apt-get install -y slurm-wlm munge). No accounting database: the
# sweep asks squeue. State lies in $SLURM_NODE_DIR (default /var/tmp/cotcost-slurm).
set -euo pipefail
DIR=${SLURM_NODE_DIR:-/var/tmp/cotcost-slurm}
export SLURM_CONF=$DIR/slurm.conf
HOST=$(hostname -s)

configure() {
  local memory
  memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
  mkdir -p "$DIR/state" "$DIR/spool"
  cat >"$SLURM_CONF" <<CONF
ClusterName=cotcost
SlurmctldHost=$HOST(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$DIR/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
ReturnToService=2
KillWait=10
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile=$DIR/slurmctld.pid
SlurmdPidFile=$DIR/slurmd.pid
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool
SlurmctldLogFile=$DIR/slurmctld.log
SlurmdLogFile=$DIR/slurmd.log
NodeName=$HOST NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

start_munge() {
  local key=$DIR/munge.key
  [ -f "$key" ] || (umask 077; head -c 1024 /dev/urandom >"$key")
  munged --force --key-file="$key" --socket="$DIR/munge.socket" --pid-file="$DIR/munged.pid" \
    --log-file="$DIR/munged.log" --seed-file="$DIR/munged.seed"
}

wait_until_idle() {
  for _ in $(seq 60); do
    if sinfo --noheader -o %t 2>/dev/null | grep -qE '^(idle|mix|alloc)$'; then return; fi
    sleep 0.5
  done
  echo "the node does not come up; see $DIR/*.log" >&2
  exit 1
}

cancel_all() {
  scancel --quiet --user=root 2>/dev/null || true
  for _ in $(seq 60); do
    if [ -z "$(timeout 5 squeue --noheader 2>/dev/null)" ]; then return; fi
    sleep 0.5
  done
}

stop() {
  local pid
  for name in slurmd slurmctld munged; do
    [ -f "$DIR/$name.pid" ] || continue
    pid=$(cat "$DIR/$name.pid")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  done
}

case ${1:-} in
up)
  configure
  start_munge
  slurmctld
  slurmd
  wait_until_idle
  echo "export SLURM_CONF=$SLURM_CONF"
  ;;
down)
  if [ -f "$SLURM_CONF" ]; then cancel_all; fi
  stop
  rm -rf "$DIR"
  ;;
*)
  echo "usage: $0 up | down" >&2
  exit 2
  ;;
esac
