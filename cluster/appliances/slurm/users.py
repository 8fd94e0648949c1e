#!/usr/bin/env python3
"""Gives the users and groups of the master to the other members of the cluster.

`spread` runs on the master: it sends what has changed to each slave, where `apply` puts it
into /etc. Only IDs from 1000 to 59999 belong to the cluster; the accounts of the system stay
those of each machine.
"""
import hashlib
import json
import os
import subprocess
import sys

ETC = os.environ.get("CROFT_ETC", "/etc")
STATE = os.environ.get("CROFT_USERS_STATE", "/run/croft-users")
LOGIN = os.environ.get("CROFT_USERS_LOGIN", "ssh -o BatchMode=yes -o ConnectTimeout=10").split()
FILES = ("passwd", "group", "shadow")


def lines(name):
    try:
        with open(os.path.join(ETC, name)) as f:
            return [line for line in f.read().splitlines() if line]
    except FileNotFoundError:
        return []


def shared(line):
    """Whether a line of passwd or group belongs to the cluster."""
    parts = line.split(":")
    return len(parts) > 2 and parts[2].isdigit() and 1000 <= int(parts[2]) < 60000


def collect():
    users = {line.split(":")[0] for line in lines("passwd") if shared(line)}
    return {"passwd": [line for line in lines("passwd") if shared(line)],
            "group": [line for line in lines("group") if shared(line)],
            "shadow": [line for line in lines("shadow") if line.split(":")[0] in users]}


def merge(name, own, told, left):
    """Returns the lines of a file: the machine's own ones, and those of the cluster."""
    if name == "shadow":
        own = [line for line in own if line.split(":")[0] not in left]
    else:
        own = [line for line in own if not shared(line)]
    names = {line.split(":")[0] for line in own}
    return own + [line for line in told if line.split(":")[0] not in names]


def apply(told):
    left = {line.split(":")[0] for line in lines("passwd") if shared(line)}
    for name in FILES:
        before = lines(name)
        after = merge(name, before, told[name], left)
        if after == before or not before:
            continue
        path = os.path.join(ETC, name)
        info = os.stat(path)
        fd = os.open(path + ".croft", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as f:
            f.write("".join(line + "\n" for line in after))
            os.fchmod(f.fileno(), info.st_mode & 0o777)
            os.fchown(f.fileno(), info.st_uid, info.st_gid)
        os.replace(path + ".croft", path)


def spread():
    told = json.dumps(collect())
    os.makedirs(STATE, exist_ok=True)
    failed = False
    with open(os.path.join(ETC, "croft", "peers")) as f:
        peers = [line.split() for line in f.read().splitlines()]
    with open(os.path.abspath(__file__)) as f:
        program = f.read()
    for peer in peers:
        if len(peer) < 3 or peer[2] != "slave":
            continue
        note = Note(peer[1], told + program + " ".join(peer))
        if note.known():
            continue
        # The program goes along, so that a slave needs none of this.
        code = "import sys; told = sys.stdin.readline(); sys.argv = ['users', 'apply', told]; exec(sys.stdin.read())"
        sent = subprocess.run(LOGIN + ["root@" + peer[1], 'python3 -c "' + code + '"'], input=told + "\n" + program,
                              text=True)
        if sent.returncode != 0:
            failed = True
            continue
        note.keep()
    account()
    sys.exit(1 if failed else 0)


def account():
    """Has Slurm account for the users of the cluster, once its database is there."""
    names = ",".join(line.split(":")[0] for line in collect()["passwd"])
    note = Note("(accounting)", names)
    ready = ["sacctmgr", "-nP", "list", "account", "users"]
    if not os.path.exists(os.path.join(ETC, "slurm", "slurmdbd.conf")) or not names or note.known():
        return
    if not subprocess.run(ready, capture_output=True, text=True).stdout.strip():
        return
    subprocess.run(["sacctmgr", "-i", "-Q", "add", "user", "name=" + names, "account=users"],
                   stdout=subprocess.DEVNULL)
    note.keep()


class Note:
    """What was told last, so that it is told once."""

    def __init__(self, name, told):
        self.path, self.mark = os.path.join(STATE, name), hashlib.sha256(told.encode()).hexdigest()

    def known(self):
        try:
            with open(self.path) as f:
                return f.read() == self.mark
        except FileNotFoundError:
            return False

    def keep(self):
        with open(self.path, "w") as f:
            f.write(self.mark)


if __name__ == "__main__":
    if sys.argv[1:2] == ["spread"]:
        spread()
    elif sys.argv[1:2] == ["apply"] and len(sys.argv) == 3:
        apply(json.loads(sys.argv[2]))
    else:
        sys.exit("usage: users.py spread | apply USERS")
