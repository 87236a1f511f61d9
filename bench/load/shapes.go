package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/bench"
)

// Load shapes, as tools that generate load over HTTP offer them: a rising rate, a burst, tasks of
// several priorities, delayed tasks.
const (
	// shapeSustained rises from one rate to another in steps.
	shapeSustained = "sustained"
	// shapeBurst sends many tasks at once, and then none.
	shapeBurst = "burst"
	// shapePriorities mixes three priorities.
	shapePriorities = "priorities"
	// shapeDelayed lets half of the tasks wait before they are ready.
	shapeDelayed = "delayed"
)

// The arrivals of the open shapes, in tasks a second.
const (
	// sustainedFrom is the rate when the generator starts, and sustainedTo the last one.
	sustainedFrom = 200.0
	sustainedTo   = 1_000.0
	// sustainedUps is the number of steps from one to the other.
	sustainedUps = 9
	// burstTasks is what arrives within burstWithin; nothing arrives after that.
	burstTasks  = 10_000
	burstWithin = 10 * time.Second
)

// shapeVariants is the number of bodies of creates that are made beforehand, from which pumps draw.
const shapeVariants = 100

// Shapes drives the queue through REST in the shape that the row names. Rows with another kind
// differ by their numbers only.
func Shapes(ctx context.Context, rig *bench.Rig) error {
	r, err := newRESTRun(rig)
	if err != nil {
		return err
	}
	defer r.http.CloseIdleConnections()
	if !rig.Ceiling && rig.Rate == 0 {
		shapeArrivals(rig)
	}
	if err := r.vary(); err != nil {
		return err
	}
	return r.run(ctx)
}

// shapeArrivals makes an open loop of the shapes that are one. A window that is shorter than the
// row's holds the whole shape, faster.
func shapeArrivals(rig *bench.Rig) {
	// whole is the time over which the generator runs.
	whole := rig.Warmup + rig.Window
	switch rig.Shape.Kind {
	case shapeSustained:
		var steps []bench.Step
		for i := range sustainedUps {
			part := float64(i) / (sustainedUps - 1)
			steps = append(steps, bench.Step{
				From: whole * time.Duration(i) / sustainedUps, Rate: sustainedFrom + part*(sustainedTo-sustainedFrom),
			})
		}
		rig.Arrivals = bench.Steps(steps...)
	case shapeBurst:
		// A third of a short run is left for the burst, and the rest for the queue to drain.
		within := min(burstWithin, whole/3)
		rig.Arrivals = bench.Steps(
			bench.Step{Rate: burstTasks / burstWithin.Seconds()}, bench.Step{From: within},
		)
	default:
		return
	}
	// The rate is the mean over the run, which reports tell.
	rig.Rate = rig.Arrivals.Mean(0, 0, whole)
}

// vary makes the bodies of creates that differ: by priority (50 % have 0, 30 % have 5, 20 % have
// 9), or by delay (half of them, from 1 s to 5 s).
func (r *restRun) vary() error {
	// change sets in a task what the i-th variant differs by.
	var change func(i int, task map[string]any)
	switch r.rig.Shape.Kind {
	case shapePriorities:
		change = func(i int, task map[string]any) { // 50 %, 30 %, 20 %
			switch {
			case i >= 80:
				task["priority"] = 9
			case i >= 50:
				task["priority"] = 5
			default:
				task["priority"] = 0
			}
		}
	case shapeDelayed:
		change = func(i int, task map[string]any) {
			if i < shapeVariants/2 {
				// The delays are spread evenly over four seconds, from one second on.
				task["delay"] = seconds(time.Second + 4*time.Second*time.Duration(i)/(shapeVariants/2))
			}
		}
	default:
		return nil
	}
	bodies := make([][]byte, shapeVariants)
	for i := range bodies {
		var task map[string]any
		if err := json.Unmarshal(r.body, &task); err != nil {
			return fmt.Errorf("vary the tasks: %w", err)
		}
		change(i, task)
		b, err := json.Marshal(task)
		if err != nil {
			return fmt.Errorf("vary the tasks: %w", err)
		}
		bodies[i] = b
	}
	r.choose = func() []byte { return bodies[rand.IntN(shapeVariants)] }
	return nil
}
