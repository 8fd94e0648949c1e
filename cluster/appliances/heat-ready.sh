# ready COMMAND: repeats a command until it succeeds, and signals Heat that the cluster is set up; after five minutes it
# signals the failure. The first argument of the command is the number of slaves. Without a URL nobody waits for it.
ready() {
	[ -n "$signal_url" ] || return 0
	SIGNAL_URL=$signal_url SIGNAL_TOKEN=$signal_token python3 - "$1" <<'END'
import json
import os
import subprocess
import sys
import time
import urllib.request

status, reason = "FAILURE", "the master is not set up: this did not succeed within five minutes: " + sys.argv[1]
end = time.monotonic() + 300
slaves = None
while status == "FAILURE" and time.monotonic() < end:
    try:
        with urllib.request.urlopen("http://169.254.169.254/openstack/latest/meta_data.json", timeout=10) as answer:
            slaves = json.load(answer).get("meta", {}).get("croft_cluster_size", "0")
    except (OSError, ValueError):
        slaves = slaves or "0"  # from a disk: how many are wanted is not told
    if subprocess.run(["sh", "-c", sys.argv[1], "check", str(slaves)]).returncode == 0:
        status, reason = "SUCCESS", "the master is set up"
    else:
        time.sleep(2)
body = json.dumps({"status": status, "reason": reason, "id": "master"}).encode()
headers = {"Content-Type": "application/json", "Accept": "application/json", "X-Auth-Token": os.environ["SIGNAL_TOKEN"]}
for attempt in range(30):
    try:
        urllib.request.urlopen(urllib.request.Request(os.environ["SIGNAL_URL"], body, headers, method="POST"), timeout=30)
        break
    except OSError as e:
        print("Heat takes no signal: %s" % e, file=sys.stderr)
        time.sleep(10)
else:
    sys.exit(1)
END
}
