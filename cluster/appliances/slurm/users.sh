# spread_users has all members know the users of the master, within a minute at most.
spread_users() {
	cat >/usr/local/lib/croft/users.py <<'END'
#include slurm/users.py
END
	cat >/etc/systemd/system/croft-users.service <<'END'
[Unit]
Description=Users of the cluster on all of its members

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /usr/local/lib/croft/users.py spread
END
	cat >/etc/systemd/system/croft-users.path <<'END'
[Unit]
Description=Changes of the users of the cluster

[Path]
PathChanged=/etc/passwd
PathChanged=/etc/group
PathChanged=/etc/shadow
END
	cat >/etc/systemd/system/croft-users.timer <<'END'
[Unit]
Description=Members that were away when the users of the cluster changed

[Timer]
OnBootSec=20
OnUnitInactiveSec=30
END
	start_now_and_at_boot croft-users.path croft-users.timer
}
