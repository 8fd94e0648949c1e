package server

import (
	"encoding/json"
	"testing"
	"time"

	"croft/pool"
)

func TestStatisticsHaveTheTypesOfResalloc(t *testing.T) {
	at := time.Unix(1700000000, 250000000)
	for _, c := range []struct {
		name  string
		stats pool.Stats
		want  string
	}{
		{"before the first start", pool.Stats{}, `{"last_attempt_to_start":null,"last_successful_start":null,` +
			`"startup_success_rate":null,"startup_time_avg":null,"starts":0,"failures":0,"served":0}`},
		{"after a failed one", pool.Stats{Attempted: at, Starts: 1, Failures: 1},
			`{"last_attempt_to_start":1700000000.25,"last_successful_start":null,` +
				`"startup_success_rate":0,"startup_time_avg":null,"starts":1,"failures":1,"served":0}`},
		{"after a success", pool.Stats{Attempted: at, Succeeded: at, SuccessRate: 0.5,
			StartTime: 1500 * time.Millisecond, Starts: 2, Failures: 1, Served: 1}, `{"last_attempt_to_start":1700000000.25,` +
			`"last_successful_start":1700000000.25,"startup_success_rate":0.5,"startup_time_avg":1.5,` +
			`"starts":2,"failures":1,"served":1}`},
	} {
		if got, err := json.Marshal(statsOf(c.stats)); err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v\nwant %s", c.name, got, err, c.want)
		}
	}
}
