// Package apply executes plans: it observes nodes, locks the nodes that a plan changes or depends on, verifies that the
// plan is still valid, does its steps in batches with checks between them, and stops at the first failure.
//
// Nothing is changed before every lock is held and every node has been checked. A step that fails or has an unknown
// outcome leaves its node marked as interrupted. The next plan compares that node unit by unit, so that applying again
// leads to the same state as one undisturbed run.
package apply
