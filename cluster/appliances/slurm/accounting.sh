# account_jobs has Slurm keep what every job took (sacct, sreport): a database on the master,
# which slurmctld is told of once it is there.
account_jobs() {
	packages slurmdbd slurm-wlm-mysql-plugin mariadb-server
	mkdir -p /etc/mysql/mariadb.conf.d
	cat >/etc/mysql/mariadb.conf.d/90-croft.cnf <<'END'
[mysqld]
skip-networking
innodb_buffer_pool_size=64M
innodb_lock_wait_timeout=900
END
	start_now_and_at_boot mariadb.service
	mysql <<'END'
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
END
	cat >/etc/slurm/slurmdbd.conf.croft <<'END'
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageUser=slurm
StorageLoc=slurm_acct_db
END
	chown slurm: /etc/slurm/slurmdbd.conf.croft
	chmod 600 /etc/slurm/slurmdbd.conf.croft
	mv /etc/slurm/slurmdbd.conf.croft /etc/slurm/slurmdbd.conf
	start_now_and_at_boot slurmdbd.service
	for n in $(seq 60); do
		! sacctmgr -i -Q add cluster croft >/dev/null 2>&1 || break
		[ -z "$(sacctmgr -nP list cluster croft 2>/dev/null)" ] || break
		sleep 1
	done
	# slurmctld ends where it is told of a database that does not answer.
	[ -n "$(sacctmgr -nP list cluster croft 2>/dev/null)" ] || {
		echo "there is no accounting: slurmdbd does not answer" >&2
		exit 1
	}
	sacctmgr -i -Q add account users description=users organization=croft >/dev/null 2>&1 || true
	grep -q '^AccountingStorageType=' /etc/slurm/slurm.conf || cat >>/etc/slurm/slurm.conf <<'END'
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
END
	systemctl restart slurmctld.service
}
