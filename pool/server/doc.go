// Package server is how people and programs reach a manager of pools over HTTP: a
// JSON API, the XML-RPC of resalloc's clients, and a page for people that is live.
// Whatever server of several is asked, the one that acts answers: the others hand
// requests on to it.
package server
