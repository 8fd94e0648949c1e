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
	# sacctmgr reads of the database in slurm.conf, and slurmctld ends where the one that it is told of does not answer:
	# so it is told once the cluster is in it.
	new=/etc/slurm/slurm.conf.croft
	grep -v '^AccountingStorage' /etc/slurm/slurm.conf >$new
	printf '%s\n' AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=localhost >>$new
	for n in $(seq 60); do
		! SLURM_CONF=$new sacctmgr -i -Q add cluster croft >/dev/null 2>&1 || break
		[ -z "$(SLURM_CONF=$new sacctmgr -nP list cluster croft 2>/dev/null)" ] || break
		sleep 1
	done
	[ -n "$(SLURM_CONF=$new sacctmgr -nP list cluster croft 2>/dev/null)" ] || {
		echo "there is no accounting: slurmdbd does not answer" >&2
		exit 1
	}
	SLURM_CONF=$new sacctmgr -i -Q add account users description=users organization=croft >/dev/null 2>&1 || true
	mv $new /etc/slurm/slurm.conf
	systemctl restart slurmctld.service
}
