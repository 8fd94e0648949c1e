# warm_up prints what slurm.conf says of nodes that come from a pool of croft, and
# writes the programs that fetch them and give them back.
warm_up() {
	mkdir -p /usr/local/lib/croft /var/lib/croft-warm
	cat >/usr/local/lib/croft/warm.py <<'WARM'
#include slurm/warm.py
WARM
	for verb in resume suspend; do
		printf '#!/bin/sh\nexec python3 /usr/local/lib/croft/warm.py %s "$1"\n' $verb >/usr/local/lib/croft/warm-$verb
	done
	chmod 755 /usr/local/lib/croft/warm.py /usr/local/lib/croft/warm-*
	printf '%s\n' "$pool_key" >/etc/slurm/warm.key
	chmod 600 /etc/slurm/warm.key
	POOL_URL=$pool_url POOL_TOKEN=$pool_token POOL_TAGS=$pool_tags POOL_USER=$pool_user CLUSTER=$cluster_id \
		python3 - <<'WARM'
import base64
import json
import os
import socket

env = os.environ
address = next(line.split()[0] for line in open("/etc/croft/peers") if line.split()[1] == socket.gethostname())
with open("/etc/munge/munge.key", "rb") as f:
    munge = base64.b64encode(f.read()).decode()
set_up = """set -eu
node=$1 master=$2
echo %s | base64 -d >/etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
systemctl restart munge.service
grep -q croft-master /etc/hosts || echo "$master croft-master %s" >>/etc/hosts
systemctl is-active -q croft-slurmd || systemd-run -q --unit=croft-slurmd -p Restart=always -p RestartSec=2 \\
	/usr/sbin/slurmd -D -N "$node" --conf-server croft-master
""" % (munge, socket.gethostname())
conf = {"url": env["POOL_URL"], "token": env["POOL_TOKEN"], "tags": env["POOL_TAGS"].split(","),
        "user": env["POOL_USER"], "cluster": env["CLUSTER"], "master": address, "state": "/var/lib/croft-warm",
        "login": ["ssh", "-i", "/etc/slurm/warm.key", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
                  "-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile=/var/lib/croft-warm/known_hosts"],
        "set_up": set_up}
with open(os.open("/etc/slurm/warm.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
    json.dump(conf, f)
WARM
	chown slurm: /etc/slurm/warm.json /etc/slurm/warm.key /var/lib/croft-warm
	cat <<END
NodeName=warm-[0-$((warm_nodes - 1))] CPUs=$warm_cpus RealMemory=$warm_memory State=CLOUD
ResumeProgram=/usr/local/lib/croft/warm-resume
SuspendProgram=/usr/local/lib/croft/warm-suspend
ResumeTimeout=600
SuspendTimeout=60
SuspendTime=$warm_idle
END
}
