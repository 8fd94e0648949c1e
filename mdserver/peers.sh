#!/bin/sh
# Acquaints this member of a cluster with the others: their names in /etc/hosts,
# the keys of their SSH servers, and a key by which root logs in from one to
# another. It waits until they have addresses, then follows them in the
# background, and runs what is in /etc/croft/hosts.d after each change.
python=$(sed -n '1s/^#! *//p' "$(command -v cloud-init)")
program=/usr/local/lib/croft/peers
mkdir -p /usr/local/lib/croft /etc/croft/hosts.d
cat >$program <<'END'
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

BASE = "http://169.254.169.254/croft/v1/"
BEGIN, END = "# the cluster of croft: begin\n", "# the cluster of croft: end\n"
LIST = "/etc/croft/peers"
KEY = "/root/.ssh/croft-cluster"
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(name):
    """Returns a file of the metadata server; None: it does not tell now."""
    try:
        with direct.open(BASE + name, timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return None


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
    if BEGIN in text and END in text:
        before, _, rest = text.partition(BEGIN)
        text = before + rest.partition(END)[2]
    elif text and not text.endswith("\n"):
        text += "\n"
    put(path, text + BEGIN + "".join(line + "\n" for line in lines) + END, mode)


def login():
    """Lets root log in to the other members, and them here."""
    private, public = ask("cluster-key"), ask("cluster-key.pub")
    if not private or not public:
        return False
    os.makedirs("/root/.ssh", 0o700, exist_ok=True)
    put(KEY, private, 0o600)
    put_block("/root/.ssh/authorized_keys", [public.strip() + " croft-cluster"], 0o600)
    os.makedirs("/etc/ssh/ssh_config.d", exist_ok=True)
    put("/etc/ssh/ssh_config.d/croft-cluster.conf", "Match localuser root\n    IdentityFile " + KEY + "\n")
    return True


def meet():
    """Takes over who the members are; true: they are known."""
    told = ask("peers")
    if not told:
        return False
    if told == read(LIST):
        return True
    peers = [line.split() for line in told.splitlines()]
    names = [p[0] + " " + p[1] + (" croft-master" if p[2] == "master" else "") for p in peers]
    put_block("/etc/hosts", names)
    keys = [p[1] + "," + p[0] + " " + " ".join(p[3:]) for p in peers if len(p) > 3]
    put_block("/etc/ssh/ssh_known_hosts", keys)
    put(LIST, told)
    for name in sorted(os.listdir("/etc/croft/hosts.d")):
        path = os.path.join("/etc/croft/hosts.d", name)
        if os.access(path, os.X_OK):
            subprocess.run([path], stdin=subprocess.DEVNULL)
    return True


def follow():
    began = time.monotonic()
    while True:
        try:
            meet()
        except OSError as e:
            print(e, file=sys.stderr)
        time.sleep(2 if time.monotonic() - began < 600 else 10)


if sys.argv[1:] == ["follow"]:
    follow()
for _ in range(30):
    if login():
        break
    time.sleep(1)
else:
    sys.exit("the metadata server does not tell the key of the cluster")
for _ in range(600):
    if meet():
        break
    time.sleep(1)
END
# shellcheck disable=SC2086 # an interpreter with its flags
${python:-python3} $program
if [ -d /run/systemd/system ]; then
	cat >/etc/systemd/system/croft-peers.service <<END
[Unit]
Description=Follow the members of the cluster

[Service]
ExecStart=/usr/bin/env ${python:-python3} $program follow
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
END
	# By hand: to enable it has systemd read all units again, which takes an emulated guest ten seconds.
	mkdir -p /etc/systemd/system/multi-user.target.wants
	ln -sfn ../croft-peers.service /etc/systemd/system/multi-user.target.wants/croft-peers.service
	systemctl start --no-block croft-peers.service
else
	# shellcheck disable=SC2086
	${python:-python3} $program follow >/dev/null 2>&1 </dev/null &
fi
