#!/usr/bin/env python3
"""Slurm's ResumeProgram and SuspendProgram for nodes that come from a pool of croft.

A resumed node opens a ticket, waits for its machine, and starts slurmd there; a
suspended one closes its ticket. The ticket's key is the node's name in this cluster,
so a program that is run again, or was killed, goes on with the same ticket.
"""
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

SETTINGS = os.environ.get("SLURM_WARM", "/etc/slurm/warm.json")
DEADLINE = time.monotonic() + 600


class Refused(Exception):
    """The pool does not give a machine."""


def settings():
    with open(SETTINGS) as f:
        return json.load(f)


def ask(conf, method, path, body=None):
    request = urllib.request.Request(conf["url"].rstrip("/") + path, method=method)
    request.add_header("Content-Type", "application/json")
    if conf.get("token"):
        request.add_header("Authorization", "Bearer " + conf["token"])
    data = None if body is None else json.dumps(body).encode()
    while True:
        try:
            with urllib.request.urlopen(request, data, timeout=90) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            if e.code == 404 and method == "DELETE":
                return {}
            if e.code < 500 and e.code != 429:
                raise Refused("%s: %s" % (e, e.read().decode(errors="replace")[:300]))
            problem = e
        except OSError as e:
            problem = e
        if time.monotonic() > DEADLINE:
            raise Refused(str(problem))
        time.sleep(2)


def names(hostlist):
    out = subprocess.run(["scontrol", "show", "hostnames", hostlist], check=True, capture_output=True, text=True)
    return out.stdout.split()


def ticket(conf, node):
    """Opens the node's ticket, or finds it; false: it has ended before."""
    body = {"tags": conf["tags"], "key": conf["cluster"] + "/" + node + "/" + turn(conf, node)}
    return ask(conf, "POST", "/v1/tickets", body)


def turn_file(conf, node):
    return os.path.join(conf["state"], node)


def turn(conf, node):
    """Counts a node's suspensions: each resume after one has a ticket of its own."""
    try:
        with open(turn_file(conf, node)) as f:
            return f.read().strip() or "0"
    except FileNotFoundError:
        return "0"


def next_turn(conf, node):
    path = turn_file(conf, node)
    with open(path + ".new", "w") as f:
        f.write(str(int(turn(conf, node)) + 1))
    os.replace(path + ".new", path)


def resume(conf, node):
    t = ticket(conf, node)
    while t["state"] == "OPEN" and not t.get("served"):
        if t.get("never") or time.monotonic() > DEADLINE:
            raise Refused(str(t.get("never") or t.get("waits_for") or "no machine in time"))
        t = ask(conf, "GET", "/v1/tickets/%d?wait=60s" % t["id"])
    if t["state"] != "OPEN":
        next_turn(conf, node)
        raise Refused("ticket %d is %s" % (t["id"], t["state"]))
    resource = t["resource"]
    address = (resource.get("facts") or {}).get("address") or str(resource.get("data", "")).strip()
    subprocess.run(["scontrol", "update", "nodename=" + node, "nodeaddr=" + address], check=True)
    start = subprocess.run(conf["login"] + [conf["user"] + "@" + address, "sudo", "sh", "-s", node, conf["master"]],
                           input=conf["set_up"], text=True)
    if start.returncode != 0:
        raise Refused("%s at %s cannot be set up" % (node, address))


def suspend(conf, node):
    t = ticket(conf, node)
    ask(conf, "DELETE", "/v1/tickets/%d" % t["id"])
    next_turn(conf, node)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("resume", "suspend"):
        sys.exit("usage: warm.py resume|suspend HOSTLIST")
    conf = settings()
    os.makedirs(conf["state"], exist_ok=True)
    failed = False
    for node in names(sys.argv[2]):
        try:
            (resume if sys.argv[1] == "resume" else suspend)(conf, node)
        except Exception as e:  # one node's trouble is none of the others'
            failed = True
            print("%s: %s: %s" % (sys.argv[1], node, e), file=sys.stderr)
            if sys.argv[1] == "resume":
                subprocess.run(["scontrol", "update", "nodename=" + node, "state=down", "reason=" + str(e)[:100]])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
