// Package plan decides what must change on the nodes of a grid so that they run what a revision specifies. It compares
// the desired with the observed state and computes steps, each with its reason. It is pure. If nothing must change, the
// plan is empty.
package plan
