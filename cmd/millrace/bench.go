package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/load"
	"github.com/millrace/millrace/bench/tables"
)

// benchCmd makes the bench command and everything below it. The benchmark itself is in package
// bench; these files only map flags to its configuration and its results to exit codes.
func (a *app) benchCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure this program, and refuse to print a number that cannot be defended",
		Long: `Bench measures rows of suites: it starts servers of this executable on 127.0.0.1, drives them as a user
does, audits that everything acknowledged is there once and whole, and prints medians next to published
figures of other systems. Runs that the host disturbed do not count; they are shown with the cause.

Exit codes: 0 measured and clean, 1 errors, a wrong ratio or a missed target, 2 usage, 3 nothing could be
measured, 4 the audit failed, 5 no verdict (too noisy), 6 an unfit host (doctor, profiles), 130 interrupted with a
partial result.`,
		Example: `  millrace bench list
  millrace bench run queue.cycle --durability both --window 5s --runs 3
  millrace bench run --profile smoke
  millrace bench report bench-out/20260102-150405 --format csv
  millrace bench ab queue.cycle --base ./millrace-before`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see --help", args[0])}
			}
			return c.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	c.AddCommand(a.benchListCmd(), a.benchEnvCmd(), a.benchRunCmd(), a.benchReportCmd(), a.benchCompareCmd(), a.benchABCmd(), a.benchFindMaxCmd(), a.benchVerifyCmd(), a.benchDoctorCmd(), a.benchNullCmd(), a.benchPingPongCmd())
	for _, family := range []string{"queue", "refs", "kv"} {
		c.AddCommand(a.benchFamilyCmd(family))
	}
	c.AddCommand(a.benchSearchCmd(), a.benchSDKCmd(), a.benchEntryCmd())
	return c
}

// benchFlags binds the flags of run to a configuration, and sets the defaults first. Most flags are
// plain text or numbers here: bench judges their values, so that a result file and a command line
// are checked by the same code.
func benchFlags(f *pflag.FlagSet, c *bench.Config) {
	*c = bench.Defaults()
	// What is measured.
	f.StringVar(&c.Profile, "profile", "", "named set of rows and runs: smoke, quick, seeds or full")
	f.IntVar(&c.Runs, "runs", 0, "number of runs of each row that count, 1 to 100; default 5, or the profile's")
	f.DurationVar(&c.Window, "window", 0, "measured time of each run, 1s to 24h; default the row's")
	f.DurationVar(&c.Warmup, "warm-up", 0, "time before the window, to 10m; default the suite's, 2s")
	// Where it is measured.
	f.StringVar(&c.Durability, "durability", c.Durability, "durability of the servers: fsync, none or both")
	f.StringVar((*string)(&c.Topology), "topology", string(c.Topology), "procs: servers as processes; inproc: driver and server in one process, for rows with one server; remote: the server of --target")
	f.StringVar(&c.Target, "target", "", "host:port of a running server; it is not stopped, configured or wiped")
	f.BoolVar(&c.Insecure, "insecure", false, "plain text to a target that is not loopback")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of all random choices")
	f.StringVar(&c.Validate, "validate", c.Validate, "sample: 1 % of what was acknowledged is read back; full: all")
	f.StringVar(&c.Out, "out", "", "directory for the result; default ./bench-out/<time>")
	f.StringVar(&c.Keep, "keep", c.Keep, "when to keep the data directories: on-failure, always or never")
	f.StringVar(&c.Resume, "resume", "", "directory of a partial result to continue")
	// The load: a closed loop by default, an open loop with a rate.
	f.IntVar(&c.Concurrency, "concurrency", 0, "concurrent calls of the closed loop, 1 to 100000; default the row's")
	f.Float64Var(&c.Rate, "rate", 0, "arrivals a second, 1 to 10000000; makes the load an open loop")
	f.StringVar(&c.Arrivals, "arrivals", c.Arrivals, "pattern of the arrivals of the open loop: uniform, poisson, burst:5x or step:FILE")
	f.IntVar(&c.InFlight, "in-flight", c.InFlight, "limit of calls in flight of the open loop; further arrivals are dropped")
	f.IntVar(&c.WorkerBatch, "worker-batch", c.WorkerBatch, "tasks that a handler takes at once, at most 512; 0 = one; default the row's")
	f.IntVar(&c.ProducerBatch, "producer-batch", c.ProducerBatch, "tasks of one create call, at most 512; 0 = one; default the row's")
	f.IntVar(&c.Shards, "shards", 0, "shards of each server, and partitions of the namespace, 1 to 64; default the row's")
	f.IntVar(&c.Payload, "payload", c.Payload, "payload of a task in bytes, 1 to 1048576; default the row's")
	f.BoolVar(&c.GroupCommit, "group-commit", c.GroupCommit, "gather commits into log entries; false: one commit per entry, which every figure then says")
	// When the command fails, and what it leaves out.
	f.BoolVar(&c.Judge, "judge-targets", false, "fail the command on a missed target that depends on the machine too")
	f.BoolVar(&c.Reference, "require-reference", false, "fail the command if a figure is below the published reference")
	f.BoolVar(&c.NoProfile, "no-profile", false, "leave out the additional run with a profiler")
	f.BoolVar(&c.Force, "force", false, "measure a profile even on a host that doctor finds unfit")
	f.StringVar(&c.Data, "data", "", "parent of the servers' data directories; default the system's directory for temporary files")
}

// benchRunCmd makes the command that measures the rows that its arguments name.
func (a *app) benchRunCmd() *cobra.Command {
	return a.measures(&cobra.Command{
		Use:   "run [SUITE[/ROW]...]",
		Short: "Measure rows: names or globs, or those of a profile",
		Example: `  millrace bench run queue.cycle --worker-batch 32 --producer-batch 8 --durability both
  millrace bench run 'queue.*' --runs 3
  millrace bench run queue.cycle --rate 5000 --arrivals poisson --target db1:7081 --token-file t`,
	}, func(args []string) []string { return args })
}

// benchFamilyCmd makes a command that runs all suites of a family, such as queue: the same as bench
// run with the glob "queue.*".
func (a *app) benchFamilyCmd(family string) *cobra.Command {
	all := family + ".*"
	return a.measures(&cobra.Command{
		Use: family, Short: "Measure every " + family + " suite that is built: run '" + all + "'", Args: cobra.NoArgs,
	}, func([]string) []string { return []string{all} })
}

// measures turns cmd into a command that measures rows. It adds the flags of run; rows maps the
// arguments to the names or globs of the rows. With --list the command prints the rows and measures
// nothing.
func (a *app) measures(cmd *cobra.Command, rows func(args []string) []string) *cobra.Command {
	var c bench.Config
	var tokenFile string
	var list bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Select = rows(args)
		if list {
			return a.benchList(c.Select)
		}
		return a.bench(cmd, c, tokenFile)
	}
	benchFlags(cmd.Flags(), &c)
	cmd.Flags().BoolVar(&list, "list", false, "list the rows that the names or globs match, as bench list does, and measure nothing")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "file with the token of the target; default MILLRACE_TOKEN")
	return cmd
}

// benchConfig completes a configuration after the flags were read: from the environment for what no
// flag sets, with the token, and with the command line for the report. It refuses an explicit 0 for
// values whose zero means "not given" in the configuration.
func (a *app) benchConfig(cmd *cobra.Command, c *bench.Config, tokenFile string) (err error) {
	if err := c.FromEnvironment(os.Environ(), func(flag string) bool { return cmd.Flags().Changed(flag) }); err != nil {
		return a.benchError(err)
	}
	for name, zero := range map[string]bool{"runs": c.Runs == 0, "rate": c.Rate == 0, "concurrency": c.Concurrency == 0, "shards": c.Shards == 0, "window": c.Window == 0} {
		if zero && cmd.Flags().Changed(name) {
			return a.benchError(&bench.UsageError{Field: name, Message: "0 is below the least value, 1"})
		}
	}
	c.WarmupSet, c.Version, c.Progress = cmd.Flags().Changed("warm-up"), version, a.err
	c.Command = commandLine(cmd, c.Select)
	if c.Token, err = benchToken(tokenFile); err != nil {
		return a.benchError(err)
	}
	return nil
}

// bench carries out one measurement and prints its result, also a partial one that comes with an
// error. The exit code is that of the error, or of the result if it holds a verdict other than
// success.
func (a *app) bench(cmd *cobra.Command, c bench.Config, tokenFile string) error {
	if err := a.benchConfig(cmd, &c, tokenFile); err != nil {
		return err
	}
	h := tables.Harness()
	r, err := bench.Execute(cmd.Context(), c, h)
	if r != nil {
		// A result is printed even if the run ended with an error: it says what was measured until
		// then.
		format := "md"
		if a.json {
			format = "json"
		}
		if werr := h.Write(a.out, format, r); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	if err != nil {
		return a.benchError(err)
	}
	if r.Exit != bench.ExitOK {
		return exitError{r.Exit, errors.New(benchEnd(r))}
	}
	return nil
}

// benchEnd returns one line that says why the command does not exit with 0.
func benchEnd(r *bench.Result) string {
	switch r.Exit {
	case bench.ExitAudit:
		return "the audit failed: acknowledged writes are lost, doubled or different"
	case bench.ExitNoVerdict:
		return "no verdict: see what was left out"
	case bench.ExitCannot:
		return "some rows could not be measured"
	case bench.ExitInterrupted:
		return "interrupted: the result is partial"
	}
	return "failed: see errors, verdicts and targets above"
}

// commandLine rebuilds the command for the report, so that a reader can repeat the run. It leaves
// out flags that do not change what is measured, and the path of the token file.
func commandLine(cmd *cobra.Command, args []string) string {
	parts := []string{"millrace", "bench", "run"}
	parts = append(parts, args...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"out", "json", "resume", "token-file"}, f.Name) {
			values := []string{f.Value.String()}
			// A repeated flag is repeated in the report.
			if list, ok := f.Value.(pflag.SliceValue); ok {
				values = list.GetSlice()
			}
			for _, v := range values {
				parts = append(parts, "--"+f.Name+"="+v)
			}
		}
	})
	return strings.Join(parts, " ")
}

// benchError gives an error of bench its exit code. With --json a refused flag or configuration is
// printed here as an object with the field's name, and errReported stops report from printing it a
// second time.
func (a *app) benchError(err error) error {
	// Each kind of error has one exit code; any other error exits with exitRefused.
	var refused *bench.UsageError
	var cannot *bench.CannotError
	var unfit *bench.UnfitError
	code := exitRefused
	switch {
	case errors.As(err, &refused):
		code = bench.ExitUsage
	case errors.As(err, &cannot):
		code = bench.ExitCannot
	case errors.As(err, &unfit):
		code = bench.ExitUnfit
	}
	if !a.json || refused == nil {
		return exitError{code, err}
	}
	out := map[string]any{"error": map[string]string{
		"code": "INVALID_ARGUMENT", "message": refused.Message, "field": refused.Field, "outcome": "refused",
	}}
	if werr := json.NewEncoder(a.err).Encode(out); werr != nil {
		return werr
	}
	return exitError{code, errReported}
}

// benchListCmd makes the command that lists what can be measured.
func (a *app) benchListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list [SUITE[/ROW]...]",
		Short: "List suites, rows, published figures, targets and profiles",
		RunE:  func(_ *cobra.Command, args []string) error { return a.benchList(args) },
	}
}

// benchList prints the suites and rows that the patterns name; without patterns, all of them.
func (a *app) benchList(patterns []string) error {
	suites, err := bench.Narrow(tables.Suites(), patterns)
	if err != nil {
		return a.benchError(err)
	}
	if a.json {
		return a.print(bench.Listing(suites), nil)
	}
	return bench.WriteList(a.out, suites)
}

// benchEnvCmd makes the command that prints the description of this host that a report would
// contain.
func (a *app) benchEnvCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print the environment that a report would hold",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := bench.Defaults()
			c.Version = version
			e, err := bench.Environment(cmd.Context(), &c)
			if err != nil {
				return exitError{bench.ExitCannot, err}
			}
			return a.print(e, func(w io.Writer) {
				b, err := json.MarshalIndent(e, "", "  ")
				if err != nil {
					b = []byte(err.Error())
				}
				fmt.Fprintln(w, string(b))
			})
		},
	}
}

// benchReportCmd makes the command that renders a stored result again, in the format that --format
// or --json names.
func (a *app) benchReportCmd() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "report DIR|FILE",
		Short: "Render a result again; nothing is measured",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if a.json {
				format = "json"
			}
			r, err := bench.Load(args[0])
			if err != nil {
				return exitError{bench.ExitUsage, err}
			}
			if err := tables.Harness().Write(a.out, format, r); err != nil {
				return exitError{bench.ExitUsage, err}
			}
			return nil
		},
	}
	c.Flags().StringVar(&format, "format", "md", "form of the report: md, html, json, gobench or csv")
	return c
}

// benchNullCmd makes the hidden command that runs a server which answers without doing anything.
// The bench measures the load generator's own limit against it.
func (a *app) benchNullCmd() *cobra.Command {
	return &cobra.Command{
		Use: "null-server", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return tables.Harness().NullServer(c.Context(), func(grpc, http string) {
				// The bench that started it reads this, and gives up without it.
				_ = a.print(map[string]string{"grpc": grpc, "http": http}, func(w io.Writer) { fmt.Fprintln(w, grpc, http) })
			})
		},
	}
}

// benchPingPongCmd makes the hidden command that runs one server of the ping-pong suite. The first
// server hands each put to the others and keeps it nowhere, which shows the least that replication
// can cost on this host.
func (a *app) benchPingPongCmd() *cobra.Command {
	var r load.Relay
	c := &cobra.Command{
		Use: "pingpong-server", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return load.PingPong(c.Context(), r, func(grpc, peer string) {
				// The bench that started it reads this, and gives up without it.
				_ = a.print(map[string]string{"grpc": grpc, "peer": peer}, func(w io.Writer) { fmt.Fprintln(w, grpc, peer) })
			})
		},
	}
	f := c.Flags()
	f.StringVar(&r.Kind, "kind", "", "what carries puts to the other servers: grpc or transport")
	f.IntVar(&r.Node, "node", 1, "number of this server; server 1 receives the puts")
	f.StringSliceVar(&r.Peers, "peers", nil, "addresses of the other servers, the last one first")
	return c
}
