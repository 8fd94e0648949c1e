// Package pool keeps warm stock and hands it out: a pool's resources are started
// before anybody asks, a ticket is the right to one of them, and what comes back is
// thrown away, or cleaned and used again.
//
// One server of several acts. It alone writes, holds all of the state in memory, and
// decides in rounds: a round takes what has come in, decides what is to be done, and
// writes both as one. Nothing is told, started or handed out before it is written; so
// what a crash forgets, nobody has seen.
package pool
