// Package kill runs real processes (control processes, agents with simulated guests, and the commands of users and
// operators) and kills, suspends and starves them at random while they work: SIGKILL, SIGSTOP for up to 40 seconds, and
// as root etcd's disk frozen for 8 to 11. Then it restarts everything and checks, without any repair: no acknowledged
// instance is lost, none is on two hosts, no records of removed instances remain, and no command ended with a panic or
// an error without a kind. CROFT_KILL sets how long each test runs (15s); CROFT_KILL_SEED repeats the choices of a run,
// though not its timing.
package kill
