# munge makes the key that all members share, from the one by which they log in to each
# other, and starts munged.
munge() {
	(echo munge && cat /root/.ssh/croft-cluster) | sha512sum | cut -d' ' -f1 >/etc/munge/munge.key
	chown munge: /etc/munge/munge.key
	chmod 400 /etc/munge/munge.key
	early_unit munge.service
	start_now_and_at_boot munge.service
}
