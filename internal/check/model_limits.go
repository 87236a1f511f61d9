package check

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// waiting bounds how many tasks of a queue have not ended.
func (p *part) waiting(name string) (least, most int64) {
	waits := func(s *standing) bool { return !s.gone && !s.state.Terminal() }
	for _, t := range p.tasks {
		if t.create.Queue != name {
			continue
		}
		if t.sure(waits) {
			least++
		}
		if t.might(waits) {
			most++
		}
	}
	return least, most
}

// held bounds the bytes of payloads and results that a queue has.
func (p *part) held(name string) (least, most int64) {
	there := func(s *standing) bool { return !s.gone }
	for _, t := range p.tasks {
		if t.create.Queue != name {
			continue
		}
		if t.sure(there) {
			least += int64(len(t.now.payload))
		}
		if t.might(there) {
			most += int64(len(t.now.payload)) + t.result + t.told.most
		}
	}
	return least, most
}

// noRoom judges that a queue has no room for one task more, with a payload of that many bytes.
func (p *part) noRoom(name string, bytes int64, f core.Exhausted) error {
	limits := p.configOf(name).Limits
	switch f.Limit {
	case "max_tasks":
		if _, most := p.waiting(name); limits.MaxTasks > 0 && f.Max == limits.MaxTasks && most >= limits.MaxTasks {
			return nil
		}
	case "max_bytes":
		if _, most := p.held(name); limits.MaxBytes > 0 && f.Max == limits.MaxBytes && most+bytes > limits.MaxBytes {
			return nil
		}
	}
	return fmt.Errorf("queue %q has room: refused with %w", name, f)
}

// beyondCeilings lists the fields of a create that ask for more than the queue allows.
func (p *part) beyondCeilings(op *core.TaskCreate) []string {
	c := p.configOf(op.Queue)
	l := &c.Limits
	var out []string
	beyond := func(field string, asked, most int64) {
		if most > 0 && asked > most {
			out = append(out, field)
		}
	}
	beyond("max_attempts", int64(op.MaxAttempts), int64(l.CeilingAttempts))
	beyond("max_crashes", int64(op.MaxCrashes), int64(l.CeilingCrashes))
	beyond("max_deliveries", int64(op.MaxDeliveries), int64(l.CeilingDeliveries))
	beyond("lease", int64(op.Lease), int64(l.CeilingLease))
	beyond("max_run", int64(op.MaxRun), int64(l.CeilingMaxRun))
	beyond("priority", int64(op.Priority), int64(l.CeilingPriority))
	if l.CeilingDeliveries > 0 && op.MaxDeliveries < 0 {
		out = append(out, "max_deliveries")
	}
	if l.CeilingMaxRun > 0 && op.MaxRun < 0 && c.MaxRun > 0 {
		out = append(out, "max_run")
	}
	return out
}

// allowed judges that a create which was applied is within the limits of its queue.
func (p *part) allowed(op *core.TaskCreate) error {
	limits := p.configOf(op.Queue).Limits
	if limits == (core.QueueLimits{}) {
		return nil
	}
	if bad := p.beyondCeilings(op); len(bad) > 0 {
		return fmt.Errorf("task %s was made, and asks for more than queue %s allows: %s", op.ID, op.Queue, strings.Join(bad, ", "))
	}
	if least, _ := p.waiting(op.Queue); limits.MaxTasks > 0 && least >= limits.MaxTasks {
		return fmt.Errorf("task %s was made, and queue %s has %d tasks of %d", op.ID, op.Queue, least, limits.MaxTasks)
	}
	if least, _ := p.held(op.Queue); limits.MaxBytes > 0 && least+int64(len(op.Payload)) > limits.MaxBytes {
		return fmt.Errorf("task %s was made, and queue %s has %d bytes of %d", op.ID, op.Queue, least, limits.MaxBytes)
	}
	return nil
}
