package disk

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Kind is a kind of calls that a rule can be about. The values are those of the commands of faultfs.
type Kind string

// Kinds of calls. One call may be of several.
const (
	Read  Kind = "read"
	Write Kind = "write"
	// Grow takes space: files are made, or become longer.
	Grow Kind = "grow"
	Sync Kind = "sync"
	// Name is for changes of names and attributes.
	Name Kind = "name"
)

// Rule is what happens to calls of some kinds. The first rule that is about a call, and is not used
// up, counts.
type Rule struct {
	// Kinds is empty for all.
	Kinds []Kind `json:"kinds"`
	// Skip is the number of calls that pass before the first one that it is about.
	Skip int `json:"skip"`
	// Times is the number of calls that it is about; 0: all.
	Times int `json:"times"`
	// DelayMS is how long they wait, in milliseconds.
	DelayMS int `json:"delay_ms"`
	// Hang makes them wait until there are other rules.
	Hang bool `json:"hang"`
	// Error makes them fail: EIO or ENOSPC.
	Error string `json:"error"`
	// Short makes writes write half.
	Short bool `json:"short"`

	// skipped and fired count calls, for Skip and Times.
	skipped, fired int
}

var errnos = map[string]syscall.Errno{"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC}

// about reports whether a rule is about calls of one of the kinds.
func (r *Rule) about(kinds []Kind) bool {
	return len(r.Kinds) == 0 || slices.ContainsFunc(kinds, func(k Kind) bool { return slices.Contains(r.Kinds, k) })
}

// Calls counts calls since the beginning, by what happened to them.
type Calls struct {
	Syncs   int `json:"syncs"`
	Delayed int `json:"delayed"`
	// Held counts those that a rule or Freeze has held.
	Held   int `json:"held"`
	Failed int `json:"failed"`
	// Wrote is the name of the file that the last failed write was to.
	Wrote string `json:"wrote,omitempty"`
	Short int    `json:"short"`
	// Waiting is the number of those that are held just now.
	Waiting int `json:"waiting"`
}

// Gate is where each call comes by before it does anything. What it decides is independent of what
// the call is about to do.
type Gate struct {
	gmu sync.Mutex // guards the fields below; never taken before another lock
	// change is signalled when frozen, closed or rules change.
	change *sync.Cond
	frozen bool
	// closed says that there is no power.
	closed bool
	rules  []*Rule
	// era numbers the sets of rules: a call that waits is judged again when it changes.
	era   int
	calls Calls
}

func newGate() *Gate {
	g := &Gate{closed: true}
	g.change = sync.NewCond(&g.gmu)
	return g
}

// SetRules replaces all rules. Calls that hang are judged again.
func (g *Gate) SetRules(rules []Rule) error {
	var own []*Rule
	for i := range rules {
		r := rules[i]
		if _, ok := errnos[r.Error]; !ok && r.Error != "" {
			return fmt.Errorf("rule %d: error %q is neither EIO nor ENOSPC", i+1, r.Error)
		}
		for _, k := range r.Kinds {
			if !slices.Contains([]Kind{Read, Write, Grow, Sync, Name}, k) {
				return fmt.Errorf("rule %d: no kind %q", i+1, k)
			}
		}
		own = append(own, &r)
	}
	g.gmu.Lock()
	defer g.gmu.Unlock()
	g.rules = own
	g.era++
	g.change.Broadcast()
	return nil
}

// Freeze holds all calls until the power is cut.
func (g *Gate) Freeze() {
	g.gmu.Lock()
	defer g.gmu.Unlock()
	g.frozen = true
}

// Calls counts.
func (g *Gate) Calls() Calls {
	g.gmu.Lock()
	defer g.gmu.Unlock()
	return g.calls
}

// Shut fails all calls from now on, and those that wait.
func (g *Gate) Shut() {
	g.gmu.Lock()
	defer g.gmu.Unlock()
	g.closed, g.frozen, g.rules = true, false, nil
	g.era++
	g.change.Broadcast()
}

// open lets calls through again, without rules.
func (g *Gate) open() {
	g.gmu.Lock()
	defer g.gmu.Unlock()
	g.closed, g.frozen = false, false
}

// full reports whether a rule says that there is no space, so that Space agrees with it.
func (g *Gate) full() bool {
	g.gmu.Lock()
	defer g.gmu.Unlock()
	return slices.ContainsFunc(g.rules, func(r *Rule) bool { return r.Error == "ENOSPC" && r.about([]Kind{Grow}) })
}

// pass returns when a call may be made, or why it fails. short says that a write writes half.
//
// A call is judged once for each set of rules, so that it counts once for Skip and Times. One that
// was delayed is not judged again. The lock is not held while it sleeps.
func (g *Gate) pass(kinds ...Kind) (short bool, errno syscall.Errno) {
	g.gmu.Lock()
	defer g.gmu.Unlock()
	if slices.Contains(kinds, Sync) {
		g.calls.Syncs++
	}
	held, judged := false, -1
	var rule *Rule
	for {
		switch {
		case g.closed:
			return false, g.failed(held, syscall.EIO)
		case g.frozen:
			held = g.hold(held)
			continue
		}
		if judged != g.era {
			judged, rule = g.era, g.judge(kinds)
			if rule != nil && rule.DelayMS > 0 {
				g.calls.Delayed++
				g.gmu.Unlock()
				time.Sleep(time.Duration(rule.DelayMS) * time.Millisecond)
				g.gmu.Lock()
				judged = g.era // it has waited: other rules come too late for it
				continue
			}
		}
		switch {
		case rule != nil && rule.Hang:
			held = g.hold(held)
		case rule != nil && rule.Error != "":
			return false, g.failed(held, errnos[rule.Error])
		default:
			if held {
				g.calls.Waiting--
			}
			short = rule != nil && rule.Short
			if short {
				g.calls.Short++
			}
			return short, 0
		}
	}
}

// hold waits for a change. held says that the call was held before, so that it counts once. It returns true.
func (g *Gate) hold(held bool) bool {
	if !held {
		g.calls.Held++
		g.calls.Waiting++
	}
	g.change.Wait()
	return true
}

// failed counts a call that fails, and returns its error.
func (g *Gate) failed(held bool, errno syscall.Errno) syscall.Errno {
	if held {
		g.calls.Waiting--
	}
	g.calls.Failed++
	return errno
}

// judge finds the rule for a call, and counts it; nil: the call is a good one.
func (g *Gate) judge(kinds []Kind) *Rule {
	for _, r := range g.rules {
		switch {
		case !r.about(kinds) || r.Times > 0 && r.fired >= r.Times:
			continue
		case r.skipped < r.Skip:
			r.skipped++
			continue
		}
		r.fired++
		return r
	}
	return nil
}
