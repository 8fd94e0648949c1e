#!/bin/sh
# The user's scripts may rely on it that this member of a cluster knows the others,
# and that root can log in to them. What makes it so began earlier in the boot.
for n in $(seq 1200); do
	[ ! -e /etc/croft/peers ] || ! grep -qs ' croft-cluster$' /root/.ssh/authorized_keys || exit 0
	sleep 0.5
done
echo "who the members of the cluster are was not told in ten minutes" >&2
exit 1
