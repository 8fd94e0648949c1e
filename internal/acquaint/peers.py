import os
import sys
import time

BEGIN, END = "# the cluster of croft: begin\n", "# the cluster of croft: end\n"
LIST = "/etc/croft/peers"
KEY = "/root/.ssh/croft-cluster"
STATUS = "/run/cloud-init/status.json"


#include SOURCE


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
