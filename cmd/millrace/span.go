package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// spanValue is a flag that takes a duration of 0 or more. It is for durations that the command
// itself uses; the server checks those that are sent to it.
type spanValue time.Duration

// spanVar adds such a flag to f, with a default value.
func spanVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*spanValue)(p), name, usage)
}

// Set reads a span, such as 1m30s.
func (v *spanValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("must be a time span, such as 30s or 5m")
	}
	if d < 0 {
		return errors.New("must not be negative")
	}
	*v = spanValue(d)
	return nil
}

func (v *spanValue) String() string { return time.Duration(*v).String() }

// Type is the placeholder in help.
func (*spanValue) Type() string { return "duration" }

// momentValue is a flag that takes a time as in RFC 3339. It is the zero time without the flag.
type momentValue time.Time

// momentVar adds such a flag to f.
func momentVar(f *pflag.FlagSet, p *time.Time, name, usage string) {
	f.Var((*momentValue)(p), name, usage+", as in RFC 3339")
}

// Set reads a time, such as 2030-01-02T03:04:05Z.
func (v *momentValue) Set(s string) error {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return errors.New("must be a time of RFC 3339, such as 2030-01-02T03:04:05Z")
	}
	*v = momentValue(t)
	return nil
}

// String shows the time; nothing for the zero time, so that help shows no default.
func (v *momentValue) String() string {
	if t := time.Time(*v); !t.IsZero() {
		return t.Format(time.RFC3339Nano)
	}
	return ""
}

// Type is the placeholder in help.
func (*momentValue) Type() string { return "time" }
