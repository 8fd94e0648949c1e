// Package apply carries out plans: it locks nodes, does the phases of a plan on them, and stops where something fails.
package apply
