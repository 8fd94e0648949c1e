#!/bin/sh
# Shares /srv/share with the members, and with nobody else.
set -eu
packages nfs-kernel-server
mkdir -p /srv/share
chmod 1777 /srv/share
cat >/etc/croft/hosts.d/10-nfs <<'END'
#!/bin/sh
while read -r address _; do
	echo "/srv/share $address(rw,sync,no_subtree_check,no_root_squash)"
done </etc/croft/peers >/etc/exports
exportfs -r
END
chmod 755 /etc/croft/hosts.d/10-nfs
[ ! -e /etc/croft/peers ] || /etc/croft/hosts.d/10-nfs
start_now_and_at_boot nfs-server.service
