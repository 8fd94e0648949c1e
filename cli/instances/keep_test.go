package instances

import (
	"testing"
	"time"
)

func TestWhatIsAheadIsListedAsItWasAskedFor(t *testing.T) {
	const moment = 300 * time.Millisecond
	for asked, want := range map[time.Duration]string{2 * time.Hour: "2h", 90 * time.Minute: "1h30m", time.Hour: "1h",
		10 * time.Minute: "10m", 30 * time.Second: "29s", 72 * time.Hour: "3d", 48 * time.Hour: "2d",
		47*time.Hour + 59*time.Minute: "47h59m"} {
		if got := ahead(asked - moment); got != want {
			t.Errorf("a hold of %s is listed as %s, want %s", asked, got, want)
		}
	}
}
