package command

import (
	"time"

	"github.com/spf13/pflag"

	"croft/internal/wording"
)

// duration is the value of a flag. It accepts days, unlike pflag's own duration.
type duration time.Duration

// String implements pflag.Value. GetDuration of pflag parses the result.
func (d *duration) String() string { return wording.ForPrograms(time.Duration(*d)) }

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	given, err := wording.ParseDuration(text)
	if err == nil {
		*d = duration(given)
	}
	return err
}

// Type implements pflag.Value.
func (*duration) Type() string { return "duration" }

// DurationVar defines a flag for a duration, such as 30s, 1h30m or 90d.
func DurationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*duration)(p), name, usage)
	f.Lookup(name).DefValue = wording.Duration(value)
	if value == 0 {
		f.Lookup(name).DefValue = "0" // help does not show this default
	}
}

// Duration is like DurationVar, and returns a new variable.
func Duration(f *pflag.FlagSet, name string, value time.Duration, usage string) *time.Duration {
	p := new(time.Duration)
	DurationVar(f, p, name, value, usage)
	return p
}
