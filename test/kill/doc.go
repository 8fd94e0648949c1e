// Package kill runs real processes (control processes, servers of the API, agents with simulated guests, and the
// commands of users and operators) and kills, suspends and starves them at random while they work: SIGKILL, SIGSTOP
// for up to 40 seconds, and as root etcd's disk frozen for 8 to 11. Users have instances, volumes, snapshots, images
// and backups, on the hosts and on shared storage; operators drain, forget and fence hosts, whose power a fence agent
// cuts. Then it restarts everything and checks, without any repair: no acknowledged instance is lost, none is on two
// hosts, every disk has the data that its guest wrote last, or its instance is on record as lost, what was acknowledged
// is there and what was removed is gone, no records of removed instances remain, and no command ended with a panic or
// an error without a kind. It prints how often each action was acknowledged. CROFT_KILL sets how long each test runs
// (15s); CROFT_KILL_SEED repeats the choices of a run, though not its timing.
package kill
