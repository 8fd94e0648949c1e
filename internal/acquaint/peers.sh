#!/bin/sh
# Acquaints this member of a cluster with the others: their names in /etc/hosts,
# the keys of their SSH servers, and a key by which root logs in from one to
# another. It begins while the guest boots, as soon as cloud-init has read this,
# follows the members in the background, and runs what is in /etc/croft/hosts.d
# after each change. /etc/croft/peers is there once they are known.
python=$(sed -n '1s/^#! *//p' "$(command -v cloud-init)")
program=/usr/local/lib/croft/peers
mkdir -p /usr/local/lib/croft /etc/croft/hosts.d
# It imports little, and no packages of the site (-IS): an emulated guest takes seconds for them.
cat >$program <<'END'
#include peers.py
END
if [ -d /run/systemd/system ]; then
	# Without the default dependencies it need not wait until cloud-init has prepared the system.
	cat >/etc/systemd/system/croft-peers.service <<END
[Unit]
Description=Follow the members of the cluster
DefaultDependencies=no
After=local-fs.target network.target
Conflicts=shutdown.target
Before=shutdown.target

[Service]
ExecStart=/usr/bin/env ${python:-python3} -IS $program
Restart=always
RestartSec=5
StartupCPUWeight=10000

[Install]
WantedBy=multi-user.target
END
	# By hand: to enable it has systemd read all units again, which takes an emulated guest ten seconds.
	mkdir -p /etc/systemd/system/multi-user.target.wants
	ln -sfn ../croft-peers.service /etc/systemd/system/multi-user.target.wants/croft-peers.service
	systemctl start --no-block croft-peers.service
else
	# shellcheck disable=SC2086 # an interpreter with its flags
	${python:-python3} -IS $program >/dev/null 2>&1 </dev/null &
fi
