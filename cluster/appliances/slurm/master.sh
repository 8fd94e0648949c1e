#!/bin/sh
# Sets up slurmctld. Slaves register by themselves; those that leave the cluster are
# taken out of Slurm by a hook on the list of members.
set -eu
# shellcheck disable=SC2046 # several words
early slurmctld slurm-client munge $([ "$home" != shared ] || echo nfs-kernel-server) \
	$([ "$accounting" != yes ] || echo slurmdbd slurm-wlm-mysql-plugin mariadb-server)
munge
mkdir -p /etc/slurm /var/lib/slurm/slurmctld
chown slurm: /var/lib/slurm/slurmctld
cat >/etc/slurm/slurm.conf <<END
ClusterName=croft
SlurmctldHost=$(hostname)
SlurmctldParameters=enable_configless,cloud_reg_addrs
AuthType=auth/munge
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/linux
MpiDefault=none
ReturnToService=2
SlurmdTimeout=120
MessageTimeout=60
TreeWidth=65533
MaxNodeCount=2048
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
# Slaves ask systemd for the control groups of jobs, and make them themselves without.
echo IgnoreSystemdOnFailure=yes >/etc/slurm/cgroup.conf
if [ "$warm_nodes" -gt 0 ]; then
	warm_up >>/etc/slurm/slurm.conf
fi
cat >/etc/croft/hosts.d/10-slurm <<'END'
#!/bin/sh
# Takes slaves out of Slurm that are not in the cluster any more.
scontrol show nodes -o 2>/dev/null | grep DYNAMIC_NORM | sed -n 's/^NodeName=\([^ ]*\) .*/\1/p' | while read -r node; do
	grep -q "^[^ ]* $node " /etc/croft/peers && continue
	scontrol update nodename="$node" state=down reason='left the cluster'
	scontrol delete nodename="$node"
done
END
chmod 755 /etc/croft/hosts.d/10-slurm
mkdir -p /var/log/slurm
chown slurm: /var/log/slurm
early_unit slurmctld.service
start_now_and_at_boot slurmctld.service
[ "$home" != shared ] || share_home
spread_users
[ "$accounting" != yes ] || account_jobs
if [ "$max_slaves" -gt 0 ]; then
	follow_queue
fi
