// Package kill runs real processes (those that serve etcd and Placement, agents with simulated guests, and the
// commands of users and operators) and kills, suspends and starves them at random while they work: SIGKILL, SIGSTOP
// for up to 40 seconds, and as root the disk of etcd frozen for 8 to 11. Then everything is brought back and looked
// at, without any mending: no instance that a command was told of is lost, none is on two hosts, nothing is left of
// those that are gone, and no command ended with a panic or an error without a kind. CROFT_KILL says how long each
// test goes on (25s), CROFT_KILL_SEED repeats the choices of a run, though not its timing.
package kill
