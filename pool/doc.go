// Package pool keeps warm stock and hands it out: a pool's resources are started before they are requested, a ticket is
// the right to one of them, and a returned resource is deleted, or cleaned and used again.
//
// One of several servers leads. It alone writes, holds the whole state in memory, and decides in rounds: a round
// collects requests, decides what to do, and writes both together. Nothing is answered, started or handed out before it
// is written, so a crash loses only state that has not been visible outside.
package pool
