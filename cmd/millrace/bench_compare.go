package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/tables"
)

// benchCompareCmd makes the command that compares two stored results. The statistics and the
// verdicts are those of package bench.
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
	c.Flags().BoolVar(&force, "force", false, "compare results even if their hosts or settings differ")
	return c
}

// benchABCmd makes the command that measures two programs or servers in alternating pairs. Its
// flags are those of run, without the ones that apply to one side only.
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
			// benchConfig writes the command line as one of run.
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
	hideFlags(cmd.Flags(), "runs", "resume") // of one side alone
	cmd.Flags().StringVar(&base, "base", "", "what to compare with: a program, or host:port of a running server (then --target is the other one)")
	cmd.Flags().IntVar(&pairs, "pairs", pairs, "number of pairs that count, 1 to 50; a verdict needs 6")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "file with the token of both servers; default MILLRACE_TOKEN")
	return cmd
}

// hideFlags hides flags of run that have no meaning for another command. They still parse. It
// panics if a name is not a flag, which is a mistake in this program.
func hideFlags(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := f.MarkHidden(name); err != nil {
			panic(err) // a flag of another name
		}
	}
}

// benchVerifyCmd makes the command that checks results. It does one of three things, depending on
// its arguments: derive a result again from its runs, audit kept data directories again, or audit a
// running server.
func (a *app) benchVerifyCmd() *cobra.Command {
	c := bench.Defaults()
	var tokenFile, namespace string
	cmd := &cobra.Command{
		Use:   "verify DIR|FILE... | --target HOST:PORT [DIR|FILE...]",
		Short: "Prove results by their own runs, or repeat audits on data that was kept or on a server that runs",
		Long: `Verify reads results again and derives what they say from their runs: the form is that of the schema, every run
was audited and is clean, figures are made of the runs that count, and targets and verdicts follow from them.

A directory of kept data is audited again instead: servers are started on it, everything that the run's evidence says
was acknowledged is looked for, and they are stopped.

With --target the audit is repeated on a server that runs: by the evidence of runs against it, which their output
directories hold, or, without any, by the counters of every queue of --namespace, which must add up. Nothing is changed.

Nothing is measured. Exit codes: 0 all of it holds, 1 a result does not say what its runs do, 2 usage, or a result or
evidence that cannot be read, 3 no server, 4 an audit failed: acknowledged writes are lost, doubled or different.`,
		Example: `  millrace bench verify bench-out/20260102-150405
  millrace bench verify bench/results/*/*.json.gz
  millrace bench verify /tmp/millrace-bench-123456
  millrace bench verify --target db1:7081 --token-file t bench-out/20260102-150405`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case c.Target == "" && len(args) == 0:
				return usageError{errors.New("name a result, a directory of kept data, or a server by --target")}
			case c.Target == "" && (cmd.Flags().Changed("namespace") || cmd.Flags().Changed("token-file") || c.Insecure):
				return usageError{errors.New("--namespace, --token-file and --insecure are of a --target")}
			case len(args) > 0 && cmd.Flags().Changed("namespace"):
				return usageError{errors.New("evidence names its namespace: give --namespace without it")}
			}
			// A running server is audited by the evidence in args, or without any by its own
			// counters.
			if c.Target != "" {
				if c.Token, err = benchToken(tokenFile); err != nil {
					return a.benchError(err)
				}
				all, err := bench.AuditTarget(cmd.Context(), c, namespace, args...)
				if err != nil {
					return a.benchError(err)
				}
				return a.benchAgain(all)
			}
			return a.benchVerify(cmd.Context(), c, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Target, "target", "", "host:port of a running server; it is only read")
	f.StringVar(&tokenFile, "token-file", "", "file with the token of the target; default MILLRACE_TOKEN")
	f.StringVar(&namespace, "namespace", "default", "namespace of the target whose counters are checked if a result has no evidence")
	f.BoolVar(&c.Insecure, "insecure", false, "plain text to a target that is not loopback")
	return cmd
}

// benchVerify checks each argument: a directory that holds evidence is audited again on servers
// started for it, anything else is a result file that must follow from its runs. If both kinds
// fail, the failed audit decides the exit code, as lost writes weigh more.
func (a *app) benchVerify(ctx context.Context, c bench.Config, args []string) error {
	var again []bench.Again
	var results []string
	for _, name := range args {
		if !bench.HoldsEvidence(name) {
			results = append(results, name)
			continue
		}
		one, err := bench.AuditKept(ctx, c, name)
		if err != nil {
			return a.benchError(err)
		}
		again = append(again, *one)
	}
	if len(results) == 0 {
		return a.benchAgain(again)
	}
	err := a.benchProve(results)
	if len(again) == 0 {
		return err
	}
	if audit := a.benchAgain(again); audit != nil {
		return audit // the graver of the two
	}
	return err
}

// benchAgain prints repeated audits: each violation on a line, or that the audit holds. It returns
// an error with ExitAudit if one failed.
func (a *app) benchAgain(all []bench.Again) error {
	err := a.benchPrint(all, func(w io.Writer) error {
		for _, one := range all {
			what := one.Evidence
			if one.Row != "" {
				what += fmt.Sprintf(" (%s, run %d)", one.Row, one.Run)
			}
			for _, line := range one.Audit.Violations {
				fmt.Fprintf(w, "%s: %s\n", what, line)
			}
			if one.Audit.OK {
				fmt.Fprintf(w, "%s: holds; %d read back\n", what, one.Audit.ReadBack)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return benchExit(bench.AgainExit(all), map[int]string{bench.ExitAudit: "the audit failed: acknowledged writes are lost, doubled or different"})
}

// benchProve derives results from their own runs and prints each statement that does not hold. A
// result that cannot be read ends the command with ExitUsage before anything is printed.
func (a *app) benchProve(args []string) error {
	h := tables.Harness()
	// found has an entry for every result, an empty list for one that holds, so that JSON shows
	// what was checked.
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
}

// benchDoctorCmd makes the command that tells whether this host can give figures that repeat.
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
	cmd.Flags().StringVar(&c.Data, "data", "", "parent of the servers' data directories; default the system's directory for temporary files")
	return cmd
}

// benchPrint prints v as one JSON value with --json, else lets text write it.
func (a *app) benchPrint(v any, text func(w io.Writer) error) error {
	if a.json {
		return a.print(v, nil)
	}
	return text(a.out)
}

// benchExit returns the error for an exit code of bench, with its text from why; nil for ExitOK.
func benchExit(code int, why map[int]string) error {
	if code == bench.ExitOK {
		return nil
	}
	return exitError{code, errors.New(why[code])}
}

// benchToken returns the token for a running server: from the file, or without one from
// MILLRACE_TOKEN. It may be empty.
func benchToken(file string) (string, error) {
	if file == "" {
		return variableSecret("MILLRACE_TOKEN")
	}
	token, err := readSecret(file)
	if err != nil {
		return "", &bench.UsageError{Field: "token-file", Message: err.Error()}
	}
	return token, nil
}

// benchFindMaxCmd makes the command that searches for the highest rate of arrivals at which a
// latency holds.
func (a *app) benchFindMaxCmd() *cobra.Command {
	var c bench.Config
	var tokenFile string
	var slos []string
	var top float64
	cmd := &cobra.Command{
		Use:   "find-max SUITE[/ROW]...",
		Short: "Look for the highest rate of arrivals that keeps a latency",
		Long: `Find-max offers rates in open loops: it doubles the rate, from --rate or 1,000 a second, until one does not pass, and
halves the range until it is 5 % wide. A rate passes when its latency, counted from when a call was due, is within the
SLO, no call failed, 99 % of the arrivals ended well in the window and no more than 1 % of what was created waited at its
end. Each rate has servers and a run of its own, with an audit. Without --slo the rates are those of p99 within 10, 50 and
200 ms. "at least" says that the generator, on the same cores, may be what failed.

Exit codes: as of run; 5 when no rate passes.`,
		Example: `  millrace bench find-max queue.cycle --slo p99=10ms --json
  millrace bench find-max search.sweep/clients-50 --slo p95=5ms --rate 4000 --top 64000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name a suite, such as queue.cycle; millrace bench list shows them")}
			}
			c.Select = args
			if err := a.benchConfig(cmd, &c, tokenFile); err != nil {
				return err
			}
			// benchConfig writes the command line as one of run.
			c.Command = strings.Replace(c.Command, "bench run", "bench find-max", 1)
			if len(slos) == 0 {
				slos = bench.DefaultSLOs()
			}
			r, err := bench.FindMax(cmd.Context(), c, tables.Harness(), slos, top)
			if err != nil {
				return a.benchError(err)
			}
			if err := a.benchPrint(r, func(w io.Writer) error { return bench.WriteFindMax(w, r) }); err != nil {
				return err
			}
			return benchExit(r.Exit, map[int]string{
				bench.ExitNoVerdict: "no rate keeps the latency", bench.ExitInterrupted: "interrupted",
				bench.ExitAudit: "the audit failed: acknowledged writes are lost, doubled or different",
			})
		},
	}
	benchFlags(cmd.Flags(), &c)
	hideFlags(cmd.Flags(), "runs", "resume", "concurrency", "profile", "no-profile") // of a row's closed loop, or of many rows
	cmd.Flags().StringArrayVar(&slos, "slo", nil, "[OPERATION.]QUANTILE=DURATION, such as p99=10ms or create.p95=2ms; may be given more than once")
	cmd.Flags().Float64Var(&top, "top", 0, "highest rate to try, in arrivals a second; default 10,000,000")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "file with the token of the target; default MILLRACE_TOKEN")
	return cmd
}
