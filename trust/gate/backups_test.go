package gate

import (
	"testing"
	"time"

	"croft"
	"croft/compute/backup"
)

func TestARoomFromTheFutureIsOneFromNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	before := now.Add(-time.Hour)
	for at, want := range map[time.Time]time.Time{before: before, now.AddDate(900, 0, 0): now} {
		r := &backup.Report{Room: &backup.Room{Free: 1, Size: 2, At: at}}
		if err := checkReport(r, now); err != nil || !r.Room.At.Equal(want) {
			t.Errorf("a room of %s is one of %s, %v; want %s", at, r.Room.At, err, want)
		}
	}
	for _, room := range []backup.Room{{Free: -1}, {Free: 2, Size: 1}} {
		if err := checkReport(&backup.Report{Room: &room}, now); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%+v: %v", room, err)
		}
	}
}
