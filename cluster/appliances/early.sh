# early PACKAGE...: cloud-init runs this script early in each boot. In the first one it
# then leaves the rest to a unit, which begins at once, beside the rest of the boot, where
# the image has the packages, and after the boot, when packages can be installed, where it
# has not. The end of cloud-init waits for it. Returns to the script in that unit.
early() {
	if [ -n "${croft_set_up-}" ]; then
		for n in $(seq 1200); do
			[ ! -e /etc/croft/peers ] || break
			sleep 0.5
		done
		[ -e /etc/croft/peers ] || {
			echo "nothing is set up: who the members of the cluster are was not told in ten minutes" >&2
			exit 1
		}
		packages "$@"
		return
	fi
	[ ! -e /etc/systemd/system/croft-set-up.service ] || exit 0
	mkdir -p /usr/local/lib/croft /var/lib/cloud/scripts/per-instance
	cp "$0" /usr/local/lib/croft/set-up
	chmod 700 /usr/local/lib/croft/set-up
	cat >/etc/systemd/system/croft-set-up.service <<'END'
[Unit]
Description=Set-up of this member of the cluster
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
Environment=croft_set_up=yes
ExecStart=/usr/local/lib/croft/set-up
StandardOutput=journal+console
StandardError=journal+console
StartupCPUWeight=10000
END
	printf '#!/bin/sh\nexec systemctl start croft-set-up.service\n' >/var/lib/cloud/scripts/per-instance/croft-set-up
	chmod 755 /var/lib/cloud/scripts/per-instance/croft-set-up
	lacks "$@" || systemctl start --no-block croft-set-up.service
	exit 0
}
# early_unit UNIT: the unit of a package starts without waiting for the rest of the boot,
# and before it.
early_unit() {
	sed -e '/^After=/d; /^Wants=network-online/d' -e 's/^\[Unit\]$/&\
DefaultDependencies=no\
Conflicts=shutdown.target\
Before=shutdown.target\
After=local-fs.target systemd-tmpfiles-setup.service network.target/' -e 's/^\[Service\]$/&\
StartupCPUWeight=10000/' "/lib/systemd/system/$1" >"/etc/systemd/system/$1"
}
