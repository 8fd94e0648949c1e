// Package server serves a manager of pools over HTTP: a JSON API, a page for people that updates itself, and if
// configured another protocol for tickets. A client may use any of several servers: standbys forward requests to
// the one that leads.
package server
