package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/bench"
)

// Load shapes, as tools that generate load over HTTP offer them.
const (
	shapeSustained  = "sustained"
	shapeBurst      = "burst"
	shapePriorities = "priorities"
	shapeDelayed    = "delayed"
)

// The arrivals of the open shapes.
const (
	sustainedFrom = 200.0 // tasks a second when the generator starts
	sustainedTo   = 1_000.0
	sustainedUps  = 9 // steps from one to the other
	burstTasks    = 10_000
	burstWithin   = 10 * time.Second
)

// shapeVariants is how many bodies of creates are made beforehand, from which pumps draw.
const shapeVariants = 100

// Shapes drives the queue through REST in the shape that the row names. Rows that name none of the above differ by their
// numbers only.
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

// shapeArrivals makes an open loop of the shapes that are one. A window that is shorter than the row's has the whole
// shape in it, faster.
func shapeArrivals(rig *bench.Rig) {
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
		within := min(burstWithin, whole/3)
		rig.Arrivals = bench.Steps(
			bench.Step{Rate: burstTasks / burstWithin.Seconds()}, bench.Step{From: within},
		)
	default:
		return
	}
	rig.Rate = rig.Arrivals.Mean(0, 0, whole)
}

// vary makes the bodies of creates that are not all alike: half and more of the tasks with the lowest priority, or half of
// them delayed.
func (r *restRun) vary() error {
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
