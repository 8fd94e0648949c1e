// Package server serves a manager of pools over HTTP: a JSON API, a page for people that
// updates itself, and where it is configured another protocol for tickets. Any of several
// servers may be asked: those that do not act forward requests to the one that does.
package server
