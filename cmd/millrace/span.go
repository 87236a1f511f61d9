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
