package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench"
)

// What a worker may take in the long run: of one processor while it has no tasks, in percent; of memory more than after the first tenth,
// as a share of it; until the first task after a long rest begins, in milliseconds.
const (
	idleCPU   = 0.5
	growth    = 1.2
	firstTask = 50
)

// grow has one process carry out tasks, and compares its memory at the end with that after the first tenth of them.
func (r *Result) grow(l Language, tasks int, address, token string) error {
	r.Growth = tasks
	a, ask, err := open(l, address, token)
	if err != nil {
		return err
	}
	defer a.Close()
	var first float64
	const parts = 10
	for part := range parts {
		fields := map[string]any{"what": "cycle", "tasks": tasks / parts, "callers": callers, "slots": slots, "queue": l.Name + "-growth"}
		if _, err := ask("bench", fields); err != nil {
			return err
		}
		if part == 0 {
			first = a.Memory()
		}
	}
	r.most(l.Name, fmt.Sprintf("RSS after %d tasks, of that after %d", tasks, tasks/parts), "×", a.Memory()/first, growth, 0)
	return nil
}

// idle has a worker of each language wait without tasks, all at the same time, and gives each a task at the end.
func (r *Result) idle(ctx context.Context, chosen []Language, d time.Duration, address, token string) error {
	r.Idle = d.String()
	const settles = 5 * time.Second // what a start leaves to do
	type idler struct {
		l   Language
		a   *Agent
		ask asker
		cpu time.Duration
		rss float64
	}
	var all []*idler
	defer func() {
		for _, x := range all {
			x.a.Close()
		}
	}()
	for _, l := range chosen {
		a, ask, err := open(l, address, token)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		all = append(all, &idler{l: l, a: a, ask: ask})
		job := map[string]any{"job": "idle-" + l.Name, "handler": []any{}}
		if _, err := ask("worker", map[string]any{"slots": 16, "jobs": []any{job}}); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	if err := bench.Pause(ctx, settles); err != nil {
		return err
	}
	for _, x := range all {
		x.cpu, x.rss = x.a.CPU(), x.a.Memory()
	}
	if err := bench.Pause(ctx, d); err != nil {
		return err
	}
	for _, x := range all {
		used := x.a.CPU() - x.cpu
		r.most(x.l.Name, "CPU of a worker without tasks for "+d.String(), "%", 100*used.Seconds()/d.Seconds(), idleCPU, 0)
		r.most(x.l.Name, "RSS at the end, of that at the beginning", "×", x.a.Memory()/x.rss, growth, 0)
		begun := time.Now()
		c, err := x.a.Do("add", map[string]any{"job": "idle-" + x.l.Name, "args": "1"})
		if err != nil {
			return err
		}
		if _, err := x.a.Await(func(event map[string]any) bool { return event["event"] == "begin" }, askWithin); err != nil {
			return fmt.Errorf("%s: %w", x.l.Name, err)
		}
		r.most(x.l.Name, "first task after that, from its add to its handler", "ms", time.Since(begun).Seconds()*1000, firstTask, 0)
		if _, err := Answered(c, askWithin); err != nil {
			return err
		}
	}
	return nil
}
