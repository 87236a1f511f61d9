package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/tables"
)

// benchEntryCmd makes the command that says where the processor time of one entry goes.
func (a *app) benchEntryCmd() *cobra.Command {
	c := bench.Defaults()
	cmd := &cobra.Command{
		Use:   "entry [SUITE/ROW]",
		Short: "Say where the processor time of one entry of the log goes, by process",
		Long: `Entry measures a row whose operations are one entry of the log each, by default a put by one caller over three nodes. A run
without a profiler counts the processor time, waits of threads, reads and writes, and allocations of each process; a second one with a
profiler says what the time is spent on. Values are for one entry.`,
		Example: `  millrace bench entry
  millrace bench entry raft.entry/create --durability none --window 20s`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Select = []string{"raft.entry/put"}
			if len(args) > 0 {
				c.Select = args
			}
			c.Progress = a.err
			r, err := bench.Entry(cmd.Context(), c, tables.Harness())
			if err != nil {
				return a.benchError(err)
			}
			return a.print(r, func(w io.Writer) { writeEntry(w, r) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Durability, "durability", c.Durability, "durability of the servers: fsync or none")
	f.DurationVar(&c.Window, "window", 10*time.Second, "measured time of each of the two runs, 1s to 24h")
	f.IntVar(&c.Concurrency, "concurrency", 0, "callers at once; default the row's")
	f.StringVar(&c.Data, "data", "", "parent of the servers' data directories; default the system's directory for temporary files")
	return cmd
}

// writeEntry prints a report as Markdown.
func writeEntry(w io.Writer, r *bench.EntryReport) {
	fmt.Fprintf(w, "%s, %s: %s; %d entries in %.1f s, %.0f µs of processor time each\n\n", r.Row, r.Durability, r.Title, r.Entries, r.Seconds, r.CPU)
	row := func(name, format string, of func(u *bench.EntryUse) float64) {
		fmt.Fprintf(w, "| %s |", name)
		for i := range r.Processes {
			fmt.Fprintf(w, " "+format+" |", of(&r.Processes[i]))
		}
		fmt.Fprintln(w)
	}
	head, rule := "| For each entry |", "| --- |"
	for i := range r.Processes {
		head += fmt.Sprintf(" %s (%s) |", r.Processes[i].Role, r.Processes[i].Process)
		rule += " ---: |"
	}
	fmt.Fprintf(w, "%s\n%s\n", head, rule)
	row("processor time, µs", "%.0f", func(u *bench.EntryUse) float64 { return u.User + u.Kernel })
	row("in programs, µs", "%.0f", func(u *bench.EntryUse) float64 { return u.User })
	row("in the kernel, µs", "%.0f", func(u *bench.EntryUse) float64 { return u.Kernel })
	row("waits of threads", "%.1f", func(u *bench.EntryUse) float64 { return u.Sleeps })
	row("threads preempted", "%.2f", func(u *bench.EntryUse) float64 { return u.Preempted })
	row("reads", "%.1f", func(u *bench.EntryUse) float64 { return u.Reads })
	row("writes", "%.1f", func(u *bench.EntryUse) float64 { return u.Writes })
	row("allocations", "%.0f", func(u *bench.EntryUse) float64 { return u.Allocs })
	row("bytes allocated", "%.0f", func(u *bench.EntryUse) float64 { return u.Bytes })
	for _, name := range r.Parts() {
		row(name+", µs", "%.1f", func(u *bench.EntryUse) float64 {
			for _, p := range u.Parts {
				if p.Name == name {
					return p.US
				}
			}
			return 0
		})
	}
}
