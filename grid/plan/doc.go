// Package plan decides what has to change on the nodes of a grid so that they run what a revision says: from what
// should be and what was found it makes steps, each with its reason. It is pure, and a plan of nothing is empty.
package plan
