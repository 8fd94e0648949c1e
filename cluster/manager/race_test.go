//go:build race

package manager_test

func init() { raceEnabled = true }
