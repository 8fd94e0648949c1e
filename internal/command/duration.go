package command

import (
	"time"

	"github.com/spf13/pflag"

	"croft/internal/wording"
)

// duration is the value of a flag. It accepts days, unlike pflag's own duration.
type duration[D ~int64] struct{ value *D }

// String implements pflag.Value. GetDuration of pflag parses the result.
func (d duration[D]) String() string {
	if d.value == nil { // pflag calls it on the zero value
		return ""
	}
	return wording.ForPrograms(time.Duration(*d.value))
}

// Set implements pflag.Value.
func (d duration[D]) Set(text string) error {
	given, err := wording.ParseDuration(text)
	if err == nil {
		*d.value = D(given)
	}
	return err
}

// Type implements pflag.Value.
func (duration[D]) Type() string { return "duration" }

// DurationVar defines a flag for a duration, such as 30s, 1h30m or 90d.
func DurationVar[D ~int64](f *pflag.FlagSet, p *D, name string, value time.Duration, usage string) {
	*p = D(value)
	f.Var(duration[D]{p}, name, usage)
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
