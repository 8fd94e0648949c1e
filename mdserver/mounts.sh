#!/bin/sh
# Mounts volumes of croft. A volume gets a file system only if it is blank: without any signature that blkid knows, and
# with nothing but zeros in its first MiB. cloud-init's own fs_setup formats a disk that has another file system.

# say TEXT: reports a volume that is not mounted.
say() {
	echo "croft: volume $volume: $1" >&2
	failed=1
}

# is_blank: a device that cannot be read is not blank.
is_blank() {
	known=0
	blkid -p "$device" >/dev/null 2>&1 || known=$?
	[ "$known" = 2 ] && [ "$(head -c 1048576 "$device" | tr -d '\0' | wc -c)" = 0 ] &&
		[ "$(head -c 1048576 "$device" | wc -c)" = 1048576 ]
}

mount_volume() {
	device=/dev/disk/by-id/virtio-$volume
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ -e "$device" ] && break
		sleep 1
	done
	[ -e "$device" ] || { say "the guest does not have the disk $device"; return; }
	if is_blank; then
		command -v "mkfs.$filesystem" >/dev/null || { say "the guest has no mkfs.$filesystem"; return; }
		"mkfs.$filesystem" "$device" </dev/null >&2 || { say "mkfs.$filesystem failed"; return; }
	fi
	mkdir -p "$path"
	grep -q " $path " /proc/mounts || mount "$device" "$path" || { say "it is not mounted on $path"; return; }
	# nofail: the guest boots without a volume that was detached.
	grep -q "^$device " /etc/fstab ||
		echo "$device $path auto defaults,nofail,x-systemd.device-timeout=10s 0 2" >>/etc/fstab
}

failed=0
while read -r volume path filesystem <&3; do
	mount_volume
done 3<<'VOLUMES'
#include volumes
VOLUMES
exit $failed
