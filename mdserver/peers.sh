#cloud-boothook
#!/bin/sh
# Acquaints this member of a cluster with the others: their names in /etc/hosts,
# the keys of their SSH servers, and a key by which root logs in from one to
# another. It begins while the guest boots, as soon as cloud-init has read this,
# follows the members in the background, and runs what is in /etc/croft/hosts.d
# after each change. /etc/croft/peers is there once they are known.
python=$(sed -n '1s/^#! *//p' "$(command -v cloud-init)")
program=/usr/local/lib/croft/peers
mkdir -p /usr/local/lib/croft /etc/croft/hosts.d
# It imports little, and no packages of the site (-IS): an emulated guest takes seconds for them.
cat >$program <<'END'
import os
import socket
import sys
import time

SERVER = "169.254.169.254"
BEGIN, END = "# the cluster of croft: begin\n", "# the cluster of croft: end\n"
LIST = "/etc/croft/peers"
KEY = "/root/.ssh/croft-cluster"
STATUS = "/run/cloud-init/status.json"


def ask(name):
    """Returns a file of the metadata server; None: it does not tell now."""
    request = "GET /croft/v1/" + name + " HTTP/1.0\r\nHost: " + SERVER + "\r\n\r\n"
    try:
        with socket.create_connection((SERVER, 80), timeout=10) as s:
            s.sendall(request.encode())
            answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
    except (OSError, UnicodeDecodeError):
        return None
    head, whole, body = answer.partition("\r\n\r\n")
    lines = head.split("\r\n")
    if not whole or lines[0].split()[1:2] != ["200"]:
        return None
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if key.lower() == "content-length" and int(value) != len(body.encode()):
            return None  # cut off
    return body


def read(path):
    try:
        with open(path) as f:
            return f.read()
    except FileNotFoundError:
        return ""


def put(path, text, mode=0o644):
    new = path + ".croft"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "w") as f:
        f.write(text)
    os.replace(new, path)


def put_block(path, lines, mode=0o644):
    """Replaces our part of a file that has others."""
    text = read(path)
    block = BEGIN + "".join(line + "\n" for line in lines) + END
    if block in text:
        return
    if BEGIN in text and END in text:
        text = text.partition(BEGIN)[0] + text.partition(END)[2]
    elif text and not text.endswith("\n"):
        text += "\n"
    put(path, text + block, mode)


def log_in():
    """Lets root log in to the other members; returns the line by which they may here."""
    private, public = ask("cluster-key"), ask("cluster-key.pub")
    if not private or not public:
        return ""
    os.makedirs("/root/.ssh", 0o700, exist_ok=True)
    put(KEY, private, 0o600)
    os.makedirs("/etc/ssh/ssh_config.d", exist_ok=True)
    put("/etc/ssh/ssh_config.d/croft-cluster.conf", "Match localuser root\n    IdentityFile " + KEY + "\n")
    return public.strip() + " croft-cluster"


def keys_are_written():
    """Whether cloud-init has written all keys that it will in this boot: it reads the file and writes it anew."""
    import json  # by then there is time
    try:
        return bool(json.loads(read(STATUS))["v1"]["init"]["finished"])
    except (KeyError, TypeError, ValueError):
        return False


def meet():
    """Takes over who the members are. Also what has not changed is written where it is missing: cloud-init makes
    /etc/hosts anew at each boot if it is told to."""
    told = ask("peers")
    if not told:
        return
    peers = [line.split() for line in told.splitlines()]
    names = [p[0] + " " + p[1] + (" croft-master" if p[2] == "master" else "") for p in peers]
    put_block("/etc/hosts", names)
    keys = [p[1] + "," + p[0] + " " + " ".join(p[3:]) for p in peers if len(p) > 3]
    put_block("/etc/ssh/ssh_known_hosts", keys)
    if told == read(LIST):
        return
    put(LIST, told)
    for name in sorted(os.listdir("/etc/croft/hosts.d")):
        path = os.path.join("/etc/croft/hosts.d", name)
        if os.access(path, os.X_OK):
            os.spawnl(os.P_WAIT, path, path)


began = time.monotonic()
login, settled = "", False
while True:
    try:
        login = login or log_in()
        if login:
            meet()
            settled = settled or os.path.exists(LIST) and keys_are_written()
            if settled:
                put_block("/root/.ssh/authorized_keys", [login], 0o600)
    except OSError as e:
        print(e, file=sys.stderr)
    age = time.monotonic() - began
    time.sleep(10 if age > 600 else 2 if os.path.exists(LIST) or age > 120 else 0.5)
END
if [ -d /run/systemd/system ]; then
	# Without the default dependencies it need not wait until cloud-init has prepared the system.
	cat >/etc/systemd/system/croft-peers.service <<END
[Unit]
Description=Follow the members of the cluster
DefaultDependencies=no
After=local-fs.target network.target
Conflicts=shutdown.target
Before=shutdown.target

[Service]
ExecStart=/usr/bin/env ${python:-python3} -IS $program
Restart=always
RestartSec=5
StartupCPUWeight=10000

[Install]
WantedBy=multi-user.target
END
	# By hand: to enable it has systemd read all units again, which takes an emulated guest ten seconds.
	mkdir -p /etc/systemd/system/multi-user.target.wants
	ln -sfn ../croft-peers.service /etc/systemd/system/multi-user.target.wants/croft-peers.service
	systemctl start --no-block croft-peers.service
else
	# shellcheck disable=SC2086 # an interpreter with its flags
	${python:-python3} -IS $program >/dev/null 2>&1 </dev/null &
fi
