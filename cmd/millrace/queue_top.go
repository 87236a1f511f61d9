package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	millrace "github.com/millrace/millrace/sdk/go"
)

const (
	// leastInterval bounds how often a command that looks again and again asks the server.
	leastInterval = 100 * time.Millisecond
	// maxTopRows bounds the rows of top: it is one page of the list.
	maxTopRows = 1000
	// topRows is how many rows top has where no flag says it: about a screen.
	topRows = 40
	// topName is how wide the column of names is at most. A longer name moves the rest of its line.
	topName = 30
)

// queueFlags choose queues of a list.
type queueFlags struct{ q millrace.QueueQuery }

// flags defines the flags.
func (f *queueFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.q.Prefix, "prefix", "", "what the names of the queues begin with; default any")
	c.Flags().StringVar(&f.q.Sort, "sort", "", "order: name (the default), ready (the most ready tasks first), oldest (the one that waits longest first), dead, or rate (those that completed the most in the last minute first)")
	c.Flags().StringVar(&f.q.Only, "only", "", "paused, dead (they have dead tasks) or stuck (ready tasks wait for a minute, and none runs); default all")
}

// topFlags are the flags of queue top.
type topFlags struct {
	queueFlags
	every time.Duration
	rows  int
	once  bool
}

// topView is a queue as top prints it: its counters, and what ended per second since it was read before.
type topView struct {
	statsView
	// Completions and failing attempts per second, at the first reading as the server has counted them; nil: not known.
	Done   *float64 `json:"done_per_second,omitempty"`
	Failed *float64 `json:"failed_per_second,omitempty"`
	// Completions in each of the last half minutes, as the server has counted them, oldest first.
	Spark []uint32 `json:"spark,omitempty"`
}

// queueTopCmd makes the command that shows queues live.
func (a *app) queueTopCmd() *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the counters of queues again and again, with what ends per second",
		Long: `Show the counters of queues again and again, until a signal or --timeout ends it. On a terminal the table is
drawn over; elsewhere one follows the other, and with --json each queue is a line. --once reads twice, --interval
apart, and prints one table.`,
		Example: `  millrace queue top --sort ready
  millrace queue top --once --only stuck --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case f.every < leastInterval:
				return usageError{fmt.Errorf("--interval must be at least %s", leastInterval)}
			case f.rows < 1 || f.rows > maxTopRows:
				return usageError{fmt.Errorf("--rows must be from 1 to %d", maxTopRows)}
			}
			return a.waiting(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				return a.top(ctx, client, &f)
			})
		},
	}
	f.flags(c)
	spanVar(c.Flags(), &f.every, "interval", 2*time.Second, "time between two readings")
	c.Flags().IntVar(&f.rows, "rows", topRows, "show at most this many queues, 1 to 1,000")
	c.Flags().BoolVar(&f.once, "once", false, "print one table and end")
	return c
}

// again calls fn now and every so often until it reports that it is done. That ctx ends is how such a command ends, and no error once
// fn has been called with success.
func again(ctx context.Context, every time.Duration, fn func() (done bool, err error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		done, err := fn()
		switch {
		case ctx.Err() != nil && err == nil, err != nil && !first && isOver(ctx):
			return nil
		case done || err != nil:
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// isOver reports whether ctx has ended, or will within a second: a server, which knows its deadline, may end a call by it a moment before.
func isOver(ctx context.Context) bool {
	late, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && time.Until(late) < time.Second
}

// top shows queues until ctx ends.
func (a *app) top(ctx context.Context, client *millrace.Client, f *topFlags) error {
	before := map[string]millrace.QueueStats{} // what the last reading found, at most maxTopRows
	var last time.Time
	return again(ctx, f.every, func() (bool, error) {
		q := f.q
		q.Limit = f.rows
		now := time.Now()
		page, next, err := client.FindQueues(ctx, q)
		if err != nil {
			return false, err
		}
		views, found := make([]topView, len(page)), make(map[string]millrace.QueueStats, len(page))
		for i := range page {
			one := &page[i]
			views[i], found[one.Queue] = topView{statsView: statsOf(*one), Spark: one.Spark}, *one
			if one.Rates != nil {
				views[i].Done, views[i].Failed = &one.Rates.Completed, &one.Rates.Failed
			}
			if old, known := before[one.Queue]; known {
				views[i].Done = perSecond(old.CompletedTotal, one.CompletedTotal, now.Sub(last))
				views[i].Failed = perSecond(old.FailedTotal, one.FailedTotal, now.Sub(last))
			}
		}
		first := last.IsZero()
		before, last = found, now
		if f.once && first {
			return false, nil
		}
		return f.once, a.showTop(views, next != "", now)
	})
}

// perSecond is how much a counter rose per second. One that fell is of another queue of the same name, of which nothing is known.
func perSecond(before, now uint64, in time.Duration) *float64 {
	if now < before || in <= 0 {
		return nil
	}
	rate := float64(now-before) / in.Seconds()
	return &rate
}

// showTop prints queues: a line of JSON each, or a table, which on a terminal is drawn over the one before.
func (a *app) showTop(views []topView, more bool, now time.Time) error {
	if a.json {
		for i := range views {
			if err := a.print(views[i], nil); err != nil {
				return err
			}
		}
		return nil
	}
	columns := 0
	if a.animates() {
		columns, _ = windowSize()
	}
	lines := topLines(views, now, columns)
	if more {
		lines = append(lines, "there are more queues; see --rows, --prefix and --only")
	}
	if !a.animates() {
		return a.print(nil, func(w io.Writer) { fmt.Fprintln(w, strings.Join(lines, "\n")) })
	}
	_, err := a.out.Write(overdrawn(lines))
	return err
}

// topLines is the table of queues. Names are escaped; they come first, so that a narrow terminal cuts other columns. Spark lines come last,
// as wide as a terminal with that many columns has room for; 0: any.
func topLines(views []topView, now time.Time, columns int) []string {
	names, width := []string{"queue"}, len("queue")
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ready\tscheduled\trunning\tdead\tdone/s\tfail/s\toldest\tpaused\t")
	for i := range views {
		v := &views[i]
		names = append(names, oneLine(v.Queue))
		width = max(width, min(utf8.RuneCountInString(names[i+1]), topName))
		oldest, paused := "-", "-"
		if !v.OldestReady.IsZero() {
			oldest = max(now.Sub(v.OldestReady), 0).Truncate(time.Second).String()
		}
		if v.Paused != nil {
			paused = "yes"
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t\n",
			v.Ready, v.Scheduled, v.Running, v.Dead, rateText(v.Done), rateText(v.Failed), oldest, paused)
	}
	_ = w.Flush() // a builder takes all
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = fmt.Sprintf("%-*s%s", width, names[i], lines[i])
	}
	return addSparks(lines, views, columns)
}

// rateText shows a rate; nil is not known.
func rateText(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *rate)
}

// overdrawn is a screen with the lines, each cut to its width, and no more than it has room for.
func overdrawn(lines []string) []byte {
	columns, rows := windowSize()
	return screen(lines, columns, rows)
}

// windowSize is that of the terminal, or what most have.
func windowSize() (columns, rows int) {
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		return int(size.Col), int(size.Row)
	}
	return 80, 24
}

// screen draws lines from the upper left corner on. The last row stays free, as a line feed there would move all others.
func screen(lines []string, columns, rows int) []byte {
	b := []byte("\x1b[H")
	for _, line := range lines[:min(len(lines), max(rows-1, 1))] {
		if utf8.RuneCountInString(line) > columns {
			line = string([]rune(line)[:columns])
		}
		b = append(b, escaped([]byte(line))...)
		b = append(b, "\x1b[K\n"...)
	}
	return append(b, "\x1b[J"...)
}
