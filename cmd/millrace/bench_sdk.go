package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/bench/agents"
)

// benchSDKCmd makes the command that measures the SDKs of all languages next to the one of Go.
func (a *app) benchSDKCmd() *cobra.Command {
	var s agents.Speed
	var out string
	c := &cobra.Command{
		Use:   "sdk",
		Short: "Measure the SDKs of Python and TypeScript next to the one of Go",
		Long: `Sdk starts a server of this executable and has a program of each SDK drive it in turn: 32 callers, a worker with 128 slots, and one
key written by each completion. It prints medians next to what they must be. The programs and the SDKs are those of a checkout of the
repository, which scripts/sdk-setup.sh has set up.

Exit codes: 0 all figures are as they must be, 1 errors or missed figures, 2 usage.`,
		Example: `  millrace bench sdk --rounds 5
  millrace bench sdk --languages typescript --rounds 1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if s.Rounds < 1 || s.Rounds > 100 {
				return usageError{errors.New("--rounds must be from 1 to 100")}
			}
			if s.Idle < 0 || s.Growth < 0 {
				return usageError{errors.New("--idle and --growth must not be below 0")}
			}
			var err error
			if s.Program, err = os.Executable(); err != nil {
				return err
			}
			s.Told = func(round int, language string) {
				fmt.Fprintf(a.err, "round %d of %d: %s\n", round, s.Rounds, language)
			}
			r, err := s.Measure(c.Context())
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeResult(out, r); err != nil {
					return err
				}
			}
			if err := a.print(r, func(w io.Writer) { _ = r.Table(w) }); err != nil {
				return err
			}
			if n := r.Missed(); n > 0 {
				return fmt.Errorf("%d figures are not as they must be", n)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&s.Checkout, "checkout", ".", "folder of the repository")
	f.IntVar(&s.Rounds, "rounds", 5, "rounds in which each language has its turn, 1 to 100")
	f.DurationVar(&s.Idle, "idle", 0, "how long workers wait without tasks at the end, such as 1h; default: that is left out")
	f.IntVar(&s.Growth, "growth", 0, "tasks that one process of each language carries out at the end, such as 1000000; default: that is left out")
	f.StringSliceVar(&s.Languages, "languages", nil, "languages to measure next to Go: python, python-async, typescript; default all")
	f.StringVar(&out, "out", "", "file for the result, as JSON; default none")
	return c
}

// writeResult writes a result as JSON to a file that is new or replaced.
func writeResult(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
