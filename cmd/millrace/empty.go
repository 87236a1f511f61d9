package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A text that is given and empty is not one that was left out: mostly it is a variable that a script did not set. So flags,
// arguments and variables of the environment must not be empty, where the empty text is not a value like any other.

// errEmpty refuses an empty flag. pflag puts the flag's name before it.
var errEmpty = errors.New("must not be empty: leave it out")

// filledValue wraps the value of a flag and refuses the empty text.
type filledValue struct{ pflag.Value }

// Set passes a text that is not empty to the flag itself.
func (v filledValue) Set(s string) error {
	if s == "" {
		return errEmpty
	}
	return v.Value.Set(s)
}

// emptyFlag is the annotation of a flag that may be empty.
const emptyFlag = "millrace_empty"

// mayBeEmpty marks flags whose empty text is a value like any other, such as a message without
// words. The flags must exist already.
func mayBeEmpty(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, emptyFlag, nil) // the flag was made just before
	}
}

// refuseEmpty makes all flags of c refuse the empty text, except those that mayBeEmpty marked.
// Flags of numbers, times and booleans are left as they are: they cannot parse it anyway. It may
// run twice on one flag, as a persistent flag is in two sets.
func refuseEmpty(c *cobra.Command) {
	wrap := func(f *pflag.Flag) {
		_, may := f.Annotations[emptyFlag]
		_, done := f.Value.(filledValue)
		if may || done {
			return
		}
		if _, list := f.Value.(pflag.SliceValue); list && f.DefValue == "[]" {
			f.DefValue = "" // or help would show it
		}
		f.Value = filledValue{f.Value}
	}
	for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			switch f.Value.Type() {
			// These cannot parse an empty text, so pflag refuses it already.
			case "bool", "duration", "int", "int32", "int64", "uint", "uint16", "uint32", "uint64", "float32", "float64", "count":
			default:
				wrap(f)
			}
		})
	}
}

// emptyArguments is the annotation of a command that accepts empty arguments from a position on,
// because they are values and not names.
const emptyArguments = "millrace_empty_from"

// valuesFrom marks that arguments of c from position n on, counted from 0, may be empty. It returns
// c.
func valuesFrom(c *cobra.Command, n int) *cobra.Command {
	if c.Annotations == nil {
		c.Annotations = make(map[string]string)
	}
	c.Annotations[emptyArguments] = strconv.Itoa(n)
	return c
}

// checkArguments refuses an empty argument, except where valuesFrom allows it. It does not check
// arguments after --, which are passed to another program.
func checkArguments(c *cobra.Command, args []string) error {
	// Arguments from position most on are not checked.
	most := len(args)
	if n := c.ArgsLenAtDash(); n >= 0 {
		most = n
	}
	if from, err := strconv.Atoi(c.Annotations[emptyArguments]); err == nil {
		most = min(most, from)
	}
	for i, arg := range args[:most] {
		if arg == "" {
			return fmt.Errorf("argument %d of %q must not be empty", i+1, c.CommandPath())
		}
	}
	return nil
}

// variables are the environment variables that stand for flags which are not given.
var variables = []struct {
	name, flag string
	// Other flags that also make the variable unnecessary.
	others []string
}{
	{"MILLRACE_URL", "server", []string{"socket"}},
	{"MILLRACE_REST_URL", "server", []string{"socket"}},
	{"MILLRACE_TRANSPORT", "server", []string{"socket"}},
	{"MILLRACE_TOKEN", "token", []string{"token-file", "socket"}},
	{"MILLRACE_TOKEN", "token-file", nil},
	{"MILLRACE_NAMESPACE", "ns", nil},
	{"MILLRACE_REPO", "repo", nil},
}

// checkVariables refuses a variable that is set and empty, if c would read it: c has the flag, the
// flag's help names a variable as its default, and neither the flag nor one that replaces it was
// given.
func checkVariables(c *cobra.Command) error {
	given := func(name string) bool {
		f := c.Flags().Lookup(name)
		return f != nil && f.Changed
	}
	for _, v := range variables {
		f := c.Flags().Lookup(v.flag)
		if f == nil || !strings.Contains(f.Usage, "default MILLRACE_") || given(v.flag) || slices.ContainsFunc(v.others, given) {
			continue
		}
		if value, set := os.LookupEnv(v.name); set && value == "" {
			return fmt.Errorf("environment variable %s must not be empty: unset it, or give it a value", v.name)
		}
	}
	return nil
}
