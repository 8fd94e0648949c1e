#!/usr/bin/env python3
"""Has the number of slaves follow the queue: more while jobs wait for nodes, fewer when nodes had no job for a while.

It asks the API of the cloud for the size of the cluster. A slave is drained before it is given back, and stays if a
job has come meanwhile.
"""
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

SETTINGS = os.environ.get("SLURM_FOLLOW", "/etc/slurm/follow.json")
WAITING = ("Resources", "Priority", "PartitionConfig", "PartitionNodeLimit", "ReqNodeNotAvail")
REASON = "croft: it had no job"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def ask(conf, method, path, body=None):
    request = urllib.request.Request(conf["url"].rstrip("/") + "/v1/clusters/" + conf["cluster"] + path, method=method)
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", "Bearer " + conf["token"])
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data, timeout=90) as answer:
        return json.loads(answer.read() or b"{}")


def queue():
    """Returns how many nodes, and how many CPUs, each job waits for that more nodes would start."""
    all = []
    for line in run("squeue", "-h", "-t", "PD", "-o", "%D|%C|%r").splitlines():
        nodes, cpus, reason = line.split("|", 2)
        if reason.strip("()").split(",")[0].startswith(WAITING):
            all.append((int(nodes.split("-")[0]), int(cpus)))
    return all


def slaves():
    """Returns the nodes of the cluster itself, which register by themselves: state and CPUs by name."""
    all = {}
    with open(os.environ.get("CROFT_PEERS", "/etc/croft/peers")) as f:
        names = [line.split()[1] for line in f.read().splitlines() if line.split()[2:3] == ["slave"]]
    for line in run("sinfo", "-h", "-N", "-o", "%N|%T|%c").splitlines():
        name, state, cpus = line.split("|")
        if name in names:
            all[name] = (state.rstrip("*~#$@+^-"), int(cpus))
    return all


def plan(conf, waiting, nodes, idle_since, now):
    """Returns the number of slaves that is wanted, and those that are to go.

    idle_since is when each node was first seen without a job."""
    per = max(1, min([cpus for _, cpus in nodes.values()] or [1]))
    needs = [max(n, -(-cpus // per)) for n, cpus in waiting]
    needs = [n for n in needs if n <= conf["max"]]  # the others never run here
    idle = [n for n in sorted(nodes) if nodes[n][0] == "idle"]
    size = len(nodes)
    if needs:
        return max(size, min(conf["max"], size - len(idle) + sum(needs))), []
    old = [n for n in idle if now - idle_since.get(n, now) >= conf["idle"]]
    go = old[len(old) - max(0, min(len(old), size - conf["min"])):] if size > conf["min"] else []
    return size, go


def give_back(conf, name):
    run("scontrol", "update", "nodename=" + name, "state=drain", "reason=" + REASON)
    if slaves().get(name, ("gone", 0))[0] != "drained":
        run("scontrol", "update", "nodename=" + name, "state=resume")
        return
    try:
        ask(conf, "DELETE", "/hosts/" + name)
    except Exception:
        run("scontrol", "update", "nodename=" + name, "state=resume")
        raise


def once(conf, idle_since, now):
    cluster = ask(conf, "GET", "")
    nodes, waiting = slaves(), queue()
    for name in list(idle_since):
        if nodes.get(name, ("", 0))[0] != "idle":
            del idle_since[name]
    for name, (state, _) in nodes.items():
        if state == "idle":
            idle_since.setdefault(name, now)
    if cluster["state"] != "READY" or cluster["slaves"] != len(nodes):
        return  # a change is under way, or a slave is lost, which the cloud makes again
    want, go = plan(conf, waiting, nodes, idle_since, now)
    if want > len(nodes):
        print("jobs wait for nodes: %d slaves instead of %d" % (want, len(nodes)))
        ask(conf, "PATCH", "", {"slaves": want})
    for name in go:
        print("%s had no job for %d s" % (name, conf["idle"]))
        give_back(conf, name)


def main():
    idle_since = {}
    while True:
        with open(SETTINGS) as f:
            conf = json.load(f)
        try:
            once(conf, idle_since, time.monotonic())
        except urllib.error.HTTPError as e:
            print("the cloud refuses: %s: %s" % (e, e.read().decode(errors="replace")[:300]), file=sys.stderr)
        except (OSError, ValueError, subprocess.CalledProcessError) as e:
            print(e, file=sys.stderr)
        if sys.argv[1:] == ["once"]:
            return
        time.sleep(conf.get("every", 15))


if __name__ == "__main__":
    main()
