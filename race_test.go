//go:build race

package croft_test

func init() { raceEnabled = true }
