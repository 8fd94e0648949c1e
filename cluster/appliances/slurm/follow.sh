# follow_queue has the number of slaves follow the queue, by the API of the cloud.
follow_queue() {
	cat >/usr/local/lib/croft/follow.py <<'END'
#include slurm/follow.py
END
	CLUSTER=$cluster_id URL=$cloud_url TOKEN=$cloud_token LOW=$low_slaves HIGH=$max_slaves IDLE=$slave_idle python3 - <<'END'
import json
import os

env = os.environ
conf = {"cluster": env["CLUSTER"], "url": env["URL"], "token": env["TOKEN"], "min": int(env["LOW"]),
        "max": int(env["HIGH"]), "idle": int(env["IDLE"])}
with open(os.open("/etc/slurm/follow.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
    json.dump(conf, f)
END
	cat >/etc/systemd/system/croft-follow.service <<'END'
[Unit]
Description=The number of slaves follows the queue
After=slurmctld.service network.target

[Service]
ExecStart=/usr/bin/python3 -u /usr/local/lib/croft/follow.py
Restart=always
RestartSec=15
END
	start_now_and_at_boot croft-follow.service
}
