package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/tables"
)

func (a *app) benchCompareCmd() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "compare OLD NEW",
		Short: "Hold two results against each other, row by row",
		Long: `Compare holds the rows that two results share against each other. A row has changed when Mann–Whitney's test
says so at 0.05, corrected for the number of rows, and its median moved by 3 % at least. It takes 4 valid runs a side.
Nothing is measured. Exit codes: 0 nothing is worse, 1 a row is worse, 2 results that do not go together, 5 a row
cannot be decided.`,
		Example: `  millrace bench compare bench-out/before bench-out/after`,
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			var results [2]*bench.Result
			for i, name := range args {
				r, err := bench.Load(name)
				if err != nil {
					return exitError{bench.ExitUsage, err}
				}
				results[i] = r
			}
			all, err := bench.Compare(results[0], results[1], force)
			if err != nil {
				return a.benchError(err)
			}
			if err := a.benchPrint(all, func(w io.Writer) error { return bench.WriteCompared(w, all) }); err != nil {
				return err
			}
			return benchExit(bench.CompareExit(all), map[int]string{
				bench.ExitFail: "a row is worse than before", bench.ExitNoVerdict: "a row cannot be decided: more runs are needed",
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "compare results of different hosts or settings nevertheless")
	return c
}

func (a *app) benchABCmd() *cobra.Command {
	var c bench.Config
	var base, tokenFile string
	pairs := bench.DefaultPairs
	cmd := &cobra.Command{
		Use:   "ab SUITE[/ROW]... --base PROGRAM|HOST:PORT",
		Short: "Measure two programs, or two running servers, in pairs",
		Long: `Ab measures rows in pairs: one run of the base and one of this program, in an order drawn from the seed, so that
what slows the host slows both. A row has changed when the 95 % interval of the pairs' ratios has no 1 in it and
their median moved by 3 % at least; 6 pairs decide, fewer do not. Exit codes: as of run; 1 when a row is worse.`,
		Example: `  millrace bench ab queue.cycle --base ./millrace-before
  millrace bench ab kv.latency --base db1:7081 --target db2:7081 --token-file t`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case base == "":
				return usageError{errors.New("name the other side by --base")}
			case len(args) == 0 && c.Profile == "":
				return usageError{errors.New("name a suite, such as queue.cycle; millrace bench list shows them")}
			}
			c.Select = args
			if err := a.benchConfig(cmd, &c, tokenFile); err != nil {
				return err
			}
			c.Command = strings.Replace(c.Command, "bench run", "bench ab", 1)
			r, err := bench.Against(cmd.Context(), c, tables.Harness(), base, pairs)
			if err != nil {
				return a.benchError(err)
			}
			if err := a.benchPrint(r, func(w io.Writer) error { return bench.WriteAB(w, r) }); err != nil {
				return err
			}
			return benchExit(r.Exit, map[int]string{
				bench.ExitFail: "a row is worse than the base, or runs had errors", bench.ExitNoVerdict: fmt.Sprintf("cannot decide: %d pairs must count", bench.DefaultPairs),
				bench.ExitAudit: "the audit failed: acknowledged writes are lost, doubled or different", bench.ExitInterrupted: "interrupted",
			})
		},
	}
	benchFlags(cmd.Flags(), &c)
	for _, name := range []string{"runs", "resume"} { // of one side alone
		if err := cmd.Flags().MarkHidden(name); err != nil {
			panic(err) // a flag of another name
		}
	}
	cmd.Flags().StringVar(&base, "base", "", "the other side: a program, or host:port of a server that runs (then --target is this side)")
	cmd.Flags().IntVar(&pairs, "pairs", pairs, "pairs that count, 1 to 50; 6 decide")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "file with the token of both servers; default MILLRACE_TOKEN")
	return cmd
}

func (a *app) benchVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR|FILE...",
		Short: "Prove results by their own runs: form, audits, figures, targets, verdicts",
		Long: `Verify reads results again and derives what they say from their runs: the form is that of the schema, every run
was audited and is clean, figures are made of the runs that count, and targets and verdicts follow from them. Nothing is
measured. Exit codes: 0 all of it holds, 1 something does not, 2 a result that cannot be read.`,
		Example: `  millrace bench verify bench-out/20260102-150405
  millrace bench verify bench/results/*/*.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			h := tables.Harness()
			found := map[string][]string{}
			bad := 0
			for _, name := range args {
				wrong, err := bench.Verify(name, &h)
				if err != nil {
					return exitError{bench.ExitUsage, err}
				}
				found[name] = append([]string{}, wrong...)
				bad += len(wrong)
			}
			err := a.benchPrint(found, func(w io.Writer) error {
				for _, name := range args {
					for _, line := range found[name] {
						fmt.Fprintf(w, "%s: %s\n", name, line)
					}
					if len(found[name]) == 0 {
						fmt.Fprintf(w, "%s: holds\n", name)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if bad > 0 {
				return exitError{bench.ExitFail, fmt.Errorf("%d statements do not hold", bad)}
			}
			return nil
		},
	}
}

func (a *app) benchDoctorCmd() *cobra.Command {
	c := bench.Defaults()
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at this host for two seconds: is it fit to be measured on?",
		Long: `Doctor looks at CPU that others use or the hypervisor takes, pressure, governor, clock source, syncs, room and
limits, and says how to mend what is in the way of figures that repeat. Exit codes: 0 fit, 6 not fit.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Version = version
			all, err := bench.Doctor(cmd.Context(), &c, nil)
			if err != nil {
				return a.benchError(err)
			}
			if err := a.benchPrint(all, func(w io.Writer) error { return bench.WriteDoctor(w, all) }); err != nil {
				return err
			}
			return benchExit(bench.DoctorExit(all), map[int]string{bench.ExitUnfit: "the host is not fit to be measured on: see FAIL above"})
		},
	}
	cmd.Flags().StringVar(&c.Data, "data", "", "where data directories would be made; default the system's for temporary files")
	return cmd
}

// benchPrint prints v as JSON when that is asked for, else as text.
func (a *app) benchPrint(v any, text func(w io.Writer) error) error {
	if a.json {
		return a.print(v, nil)
	}
	return text(a.out)
}

// benchExit ends with a code, and says why.
func benchExit(code int, why map[int]string) error {
	if code == bench.ExitOK {
		return nil
	}
	return exitError{code, errors.New(why[code])}
}

// benchToken reads the token of a server that runs.
func benchToken(file string) (string, error) {
	if file == "" {
		return os.Getenv("MILLRACE_TOKEN"), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", &bench.UsageError{Field: "token-file", Message: err.Error()}
	}
	return strings.TrimSpace(string(b)), nil
}
