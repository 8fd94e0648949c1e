package local

import "time"

// SetLeftBehind shortens how long a claim under way is left to whoever began it.
func SetLeftBehind(d time.Duration) { leftBehind = d }
