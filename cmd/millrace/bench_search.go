package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/load"
)

// searchLoadFlags are the flags of the load generator for searches, as the user gave them.
// benchSearch checks the ones that are still text.
type searchLoadFlags struct {
	// The target; the file of request bodies, empty for the default of the route; the numbers of
	// clients, separated by commas; the clients per route, which replaces concurrency; the file
	// with the token.
	url, bodies, concurrency, mixed, tokenFile string
	// Pattern of the arrivals of an open loop, which bench parses.
	arrivals string
	// How long each load lasts.
	window time.Duration
	// Requests per second of an open loop; 0 is a closed loop, in which each client waits for its
	// answer.
	rate float64
	// none or full.
	validate string
	// Makes every text unique, so that no embedding comes from a cache.
	cold bool
	// seed chooses the arrivals of an open loop, and the numbers of cold texts.
	seed uint64
}

// otherNames maps flag names of another load generator to the names here, so that its command lines
// can be used as they are. parseLoadFlags also accepts one dash for two.
var otherNames = map[string]string{"bodies-file": "bodies", "duration": "window"}

// benchSearchCmd makes the command that loads a running server with searches. It parses its flags
// itself, because it accepts the spelling of another program.
func (a *app) benchSearchCmd() *cobra.Command {
	var o searchLoadFlags
	c := &cobra.Command{
		Use:   "search URL",
		Short: "Load a server that runs with searches or texts to embed, and print rates and latencies",
		Long: `Search posts the bodies of a file in turn, each client waiting for its answer. URL is that of a route, such as
http://127.0.0.1:7080/v1/matrix/search, or of a server, which then means its search. An error ends the command with 1.

The suites search.sweep, search.mixed and search.recall of bench run start a server of their own.`,
		Example: `  millrace bench search prepare --workers 5000 --load http://127.0.0.1:7080 --drop
  millrace bench search http://127.0.0.1:7080 --bodies search.jsonl --concurrency 10,50,100,200 --window 180s
  millrace bench search http://127.0.0.1:7080 --mixed embed=60,search=60 --window 90s
  millrace bench search -url http://127.0.0.1:7080/v1/embed -bodies-file embed.jsonl -concurrency 60 -duration 90s`,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			f := c.Flags()
			rest, err := parseLoadFlags(f, args)
			if errors.Is(err, pflag.ErrHelp) {
				return c.Help()
			}
			if err != nil {
				return usageError{err}
			}
			if len(rest) == 1 && o.url == "" {
				o.url, rest = rest[0], nil
			}
			if o.url == "" || len(rest) > 0 {
				return usageError{errors.New("give one URL")}
			}
			return a.benchSearch(c.Context(), &o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.url, "url", "", "URL, instead of the argument")
	f.StringVar(&o.bodies, "bodies", "", "file of one JSON body per line; default search.jsonl or embed.jsonl of this directory")
	f.StringVar(&o.concurrency, "concurrency", "10", "number of clients, or a list of numbers to measure one after the other")
	f.DurationVar(&o.window, "window", 180*time.Second, "how long each load lasts")
	f.StringVar(&o.mixed, "mixed", "", "clients of both routes at once, such as embed=60,search=60")
	f.Float64Var(&o.rate, "rate", 0, "requests a second; makes the load an open loop")
	f.StringVar(&o.arrivals, "arrivals", "poisson", "pattern of the arrivals of the open loop: uniform, poisson, burst:5x or step:FILE")
	f.StringVar(&o.validate, "validate", "none", "none, or full: afterwards compare each answer with an exact search, and check the conditions of each row")
	f.BoolVar(&o.cold, "cold", false, "make every text unique, so that no text is in a cache")
	f.Uint64Var(&o.seed, "seed", 1, "seed of all random choices")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the token of the server; default MILLRACE_TOKEN")
	c.AddCommand(a.benchPrepareCmd())
	return c
}

// parseLoadFlags reads flags with one dash or two, and returns the arguments that are not flags. A
// flag that is given twice, under either name, is an error: which value counts would be unclear. -h
// anywhere returns pflag.ErrHelp.
func parseLoadFlags(f *pflag.FlagSet, args []string) (rest []string, err error) {
	out := make([]string, len(args))
	seen := make(map[string]bool)
	for i, arg := range args {
		out[i] = arg
		if !strings.HasPrefix(arg, "-") || arg == "-" || arg == "--" {
			continue
		}
		name, value, has := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name == "h" || name == "help" {
			return nil, pflag.ErrHelp
		}
		name = cmp.Or(otherNames[name], name)
		if f.Lookup(name) == nil {
			return nil, fmt.Errorf("unknown flag: %s", arg)
		}
		if seen[name] {
			return nil, fmt.Errorf("--%s is given twice", name)
		}
		seen[name] = true
		if out[i] = "--" + name; has {
			out[i] += "=" + value
		}
	}
	err = f.Parse(out)
	return f.Args(), err
}

// The routes of the server that can be loaded.
const (
	searchPath = "/v1/matrix/search"
	embedPath  = "/v1/embed"
)

// loadsOf returns the rounds that the flags ask for. Rounds run one after the other; the loads of
// one round run at the same time. Each number of --concurrency is a round with one load, --mixed is
// one round with several.
func loadsOf(o *searchLoadFlags, path string) ([][]loadOf, error) {
	if o.mixed == "" {
		var out [][]loadOf
		for text := range strings.SplitSeq(o.concurrency, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil || n < 1 {
				return nil, usageError{fmt.Errorf("--concurrency: %q must be a number of at least 1", text)}
			}
			out = append(out, []loadOf{{path, o.bodies, n}})
		}
		return out, nil
	}
	var both []loadOf
	for part := range strings.SplitSeq(o.mixed, ",") {
		name, number, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(number)
		paths := map[string]string{"embed": embedPath, "search": searchPath}
		if err != nil || n < 1 || paths[name] == "" {
			return nil, usageError{fmt.Errorf("--mixed: %q is neither embed=N nor search=N", part)}
		}
		both = append(both, loadOf{paths[name], "", n})
	}
	return [][]loadOf{both}, nil
}

// loadOf is one load: the route, the file of bodies (empty: the default of the route) and the
// number of clients.
type loadOf struct {
	path, bodies string
	clients      int
}

// benchSearch runs all rounds against the server and prints the figures of each load. Failed
// requests, and answers that validation finds wrong, end the command with ExitFail after all
// figures were printed: the figures are then void.
func (a *app) benchSearch(ctx context.Context, o *searchLoadFlags) error {
	u, err := url.Parse(o.url)
	if err != nil || u.Host == "" {
		return usageError{fmt.Errorf("%q is no URL", o.url)}
	}
	arrivals, err := bench.ParseArrivals(o.arrivals)
	if err != nil {
		return usageError{err}
	}
	if o.validate != "none" && o.validate != "full" {
		return usageError{fmt.Errorf("--validate: %q is neither none nor full", o.validate)}
	}
	path := u.Path
	if path == "" || path == "/" {
		path = searchPath
	}
	token, err := benchToken(o.tokenFile)
	if err != nil {
		return a.benchError(err)
	}
	// The path of the URL selects the route of --concurrency; --mixed names its routes itself.
	rounds, err := loadsOf(o, path)
	if err != nil {
		return err
	}
	base := u.Scheme + "://" + u.Host
	failed := uint64(0)
	// All loads of a round run at once, each with its own clients, and are reported when all have
	// ended.
	for _, round := range rounds {
		figures := make([]*load.SearchFigures, len(round))
		faults := make([]error, len(round))
		var wait sync.WaitGroup
		for i, one := range round {
			bodies, err := readBodies(one)
			if err != nil {
				return usageError{err}
			}
			s := &load.SearchLoad{
				Token: token, Bodies: bodies, Concurrency: one.clients, Window: o.window, Rate: o.rate, Arrivals: arrivals, Cold: o.cold, Seed: o.seed,
				Full: o.validate == "full" && one.path == searchPath,
			}
			wait.Go(func() { figures[i], faults[i] = s.Run(ctx, base, one.path) })
		}
		wait.Wait()
		if err := errors.Join(faults...); err != nil {
			return err
		}
		for _, f := range figures {
			failed += f.Errors
			if f.Violations != nil {
				failed += uint64(*f.Violations)
			}
			if err := a.print(f, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %d clients  %.1f s  %d requests  %.0f/s  p50 %.2f  p95 %.2f  p99 %.2f  max %.2f ms  %d errors  %d overloaded  %d dropped\n",
					f.Path, f.Concurrency, f.Seconds, f.Requests, f.PerSecond, f.P50, f.P95, f.P99, f.Max, f.Errors, f.Overloaded, f.Dropped)
				if f.Recall != nil {
					fmt.Fprintf(w, "validated: recall@10 %.4f  %d rows that the gate excludes\n", *f.Recall, *f.Violations)
				}
				if f.FirstError != "" {
					fmt.Fprintf(w, "first error: %s\n", f.FirstError)
				}
			}); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return exitError{bench.ExitFail, fmt.Errorf("%d requests failed: the figures are void", failed)}
	}
	return nil
}

// readBodies reads the request bodies of a load, one JSON text per line.
func readBodies(one loadOf) ([][]byte, error) {
	name := one.bodies
	if name == "" {
		if name = "search.jsonl"; one.path == embedPath {
			name = "embed.jsonl"
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	bodies, err := load.ReadBodies(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return bodies, nil
}

// benchPrepareCmd makes the command that generates data and request bodies for search loads, and
// can store the data in a server. The seed decides all of it.
func (a *app) benchPrepareCmd() *cobra.Command {
	var o load.SearchDataOptions
	var into, tokenFile, out, styles, namespace string
	var drop, gated bool
	c := &cobra.Command{
		Use:   "prepare",
		Short: "Generate made-up workers and job orders, write their request bodies, and store the workers in a server",
		Long:  "Prepare writes search.jsonl and embed.jsonl. The same seed gives the same bytes.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d := load.NewSearchData(o)
			// No names means all styles.
			var names []string
			if styles != "all" && styles != "" {
				names = strings.Split(styles, ",")
				for _, s := range names {
					if !slices.Contains(load.SearchStyles, s) {
						return usageError{fmt.Errorf("--styles: %q must be one of %s", s, strings.Join(load.SearchStyles, ", "))}
					}
				}
			}
			queries := d.Queries(load.SearchBodies{Ruleset: "staffing", Gated: gated}, names...)
			bodies := make([][]byte, len(queries))
			for i := range queries {
				bodies[i] = queries[i].Body
			}
			if err := errors.Join(writeLines(filepath.Join(out, "search.jsonl"), bodies), writeLines(filepath.Join(out, "embed.jsonl"), load.EmbedBodies(queries))); err != nil {
				return err
			}
			v := map[string]any{"workers": len(d.Workers), "bodies": len(bodies)}
			// Storing comes last, so that the files exist even if the server refuses the workers.
			if into != "" {
				token, err := benchToken(tokenFile)
				if err != nil {
					return a.benchError(err)
				}
				n, took, err := load.PrepareSearch(c.Context(), into, token, namespace, d, drop)
				if err != nil {
					return err
				}
				v["stored"], v["seconds"] = n, took.Seconds()
			}
			return a.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%d workers, %d bodies in search.jsonl and embed.jsonl\n", len(d.Workers), len(bodies))
				if v["stored"] != nil {
					fmt.Fprintf(w, "stored %d workers in %.1f s\n", v["stored"], v["seconds"])
				}
			})
		},
	}
	f := c.Flags()
	f.IntVar(&o.Workers, "workers", 5000, "number of workers")
	f.IntVar(&o.Orders, "orders", 50, "number of job orders, each in every style")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of all random choices")
	f.StringVar(&styles, "styles", "all", "styles of the orders' texts: a list of need, client_first, looking and shorthand, or all")
	f.BoolVar(&gated, "gated", true, "put the conditions of each order into its body")
	f.StringVar(&into, "load", "", "base URL of a server to store the workers in")
	f.BoolVar(&drop, "drop", false, "with --load: empty the collection first")
	f.StringVar(&namespace, "ns", "", "namespace; default is the one named default")
	f.StringVar(&tokenFile, "token-file", "", "file with the token of the server; default MILLRACE_TOKEN")
	f.StringVar(&out, "out", ".", "directory to write the files to")
	return c
}

// writeLines writes each text and a line feed to a new file, and replaces one of that name.
func writeLines(name string, lines [][]byte) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	for _, line := range lines {
		_, _ = w.Write(line)  // Flush tells
		_ = w.WriteByte('\n') // as here
	}
	return w.Flush()
}
