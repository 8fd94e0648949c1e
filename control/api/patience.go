package api

import (
	"time"

	"croft"
	"croft/internal/wording"
)

// Patience is how long a request waits at most for what it ordered; 0: as long as requests wait by default.
type Patience time.Duration

// defaultPatience is the wait of requests that name none.
const defaultPatience = Patience(time.Minute)

// LongestPatience is the longest wait that a request may name.
const LongestPatience = 10 * time.Minute

// Duration returns the time, which is not 0.
func (p Patience) Duration() time.Duration {
	if p == 0 {
		p = defaultPatience
	}
	return time.Duration(p)
}

// MarshalText implements encoding.TextMarshaler.
func (p Patience) MarshalText() ([]byte, error) {
	return []byte(wording.ForPrograms(time.Duration(p))), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. Invalid.
func (p *Patience) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 || d > LongestPatience {
		return croft.Errorf(croft.Invalid, "is no duration such as 30s, of %s at most",
			wording.Duration(LongestPatience))
	}
	*p = Patience(d)
	return nil
}
