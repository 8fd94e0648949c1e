package local

import "time"

// SetLeftBehind changes the time after which a claim in progress counts as abandoned.
func SetLeftBehind(d time.Duration) { leftBehind = d }
