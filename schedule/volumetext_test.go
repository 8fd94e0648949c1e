package schedule_test

import (
	"testing"

	"croft"
	"croft/schedule"
)

func TestSizesOfVolumes(t *testing.T) {
	for text, want := range map[string]int64{"20": 20, "20G": 20, "20g": 20, "20GiB": 20, "20gib": 20, "1T": 1024,
		"1t": 1024, "1TiB": 1024} {
		if got, err := schedule.ParseVolumeSize(text); err != nil || got != want {
			t.Errorf("%s is %d GiB (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "G", "iB", "0", "-1", "1.5G", "20M", "20 G", "1e3", "9223372036854775807T"} {
		if got, err := schedule.ParseVolumeSize(text); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q is %d GiB (%v), want Invalid", text, got, err)
		}
	}
}
