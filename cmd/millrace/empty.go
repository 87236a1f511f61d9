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

var errEmpty = errors.New("must not be empty: leave it out")

// filledValue is a flag that refuses the empty text.
type filledValue struct{ pflag.Value }

// Set reads the flag.
func (v filledValue) Set(s string) error {
	if s == "" {
		return errEmpty
	}
	return v.Value.Set(s)
}

// emptyFlag marks a flag that may be empty.
const emptyFlag = "millrace_empty"

// mayBeEmpty says of flags that their empty text is a value like any other, such as a message without words.
func mayBeEmpty(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, emptyFlag, nil) // the flag was made just before
	}
}

// refuseEmpty has all flags of c refuse the empty text, but for those that may be empty. Flags of numbers refuse it themselves.
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
			case "bool", "duration", "int", "int32", "int64", "uint", "uint16", "uint32", "uint64", "float32", "float64", "count":
			default:
				wrap(f)
			}
		})
	}
}

// emptyArguments is the annotation of a command whose arguments from a number on may be empty: values, not names.
const emptyArguments = "millrace_empty_from"

// valuesFrom says that arguments of c from number n on, counted from 0, may be empty.
func valuesFrom(c *cobra.Command, n int) *cobra.Command {
	if c.Annotations == nil {
		c.Annotations = make(map[string]string)
	}
	c.Annotations[emptyArguments] = strconv.Itoa(n)
	return c
}

// checkArguments refuses an empty argument. What follows -- is another program's.
func checkArguments(c *cobra.Command, args []string) error {
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

// variables are those of the environment that stand for flags which are not given.
var variables = []struct {
	name, flag string
	others     []string // flags that stand for it too
}{
	{"MILLRACE_URL", "server", []string{"socket"}},
	{"MILLRACE_REST_URL", "server", []string{"socket"}},
	{"MILLRACE_TRANSPORT", "server", []string{"socket"}},
	{"MILLRACE_TOKEN", "token", []string{"token-file", "socket"}},
	{"MILLRACE_TOKEN", "token-file", nil},
	{"MILLRACE_NAMESPACE", "ns", nil},
	{"MILLRACE_REPO", "repo", nil},
}

// checkVariables refuses a variable that is set and empty, where c would read it.
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
