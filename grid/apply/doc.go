// Package apply carries out plans: it looks at nodes, locks those that a plan changes or counts on, makes sure that the
// plan is still right, does its steps in batches with checks between them, and stops where something fails.
//
// Nothing is changed before every lock is held and every node was asked. A step that fails, or whose outcome is not
// known, leaves its node marked as interrupted; the next plan compares that node unit by unit, so applying again leads
// to the state that one undisturbed run leads to.
package apply
