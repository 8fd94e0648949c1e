# share_home: the master's /home is that of all members, and of nobody else.
share_home() {
	cat >/etc/croft/hosts.d/20-home <<'END'
#!/bin/sh
mkdir -p /etc/exports.d
while read -r address _; do
	echo "/home $address(rw,sync,no_subtree_check,no_root_squash)"
done </etc/croft/peers >/etc/exports.d/croft-home.exports
# Where the server does not run yet, it reads the list when it starts.
exportfs -r || true
END
	chmod 755 /etc/croft/hosts.d/20-home
	/etc/croft/hosts.d/20-home
	start_now_and_at_boot nfs-server.service
}
# mount_home waits for the master's /home: no job is to start without it.
mount_home() {
	grep -q '^croft-master:/home ' /etc/fstab || echo 'croft-master:/home /home nfs4 rw,_netdev,nofail 0 0' >>/etc/fstab
	for n in $(seq 300); do
		! mountpoint -q /home || return 0
		mount /home 2>/dev/null || sleep 2
	done
	echo "the master does not share /home" >&2
	exit 1
}
