package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// spanValue is a flag that takes a time span of 0 or more, of a command itself. Spans that a server is sent are the server's to refuse.
type spanValue time.Duration

// spanVar adds such a flag.
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
