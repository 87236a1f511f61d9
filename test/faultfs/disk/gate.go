package disk

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Kind is a kind of calls that a rule can be about.
type Kind string

// Kinds of calls. One call may be of several.
const (
	Read  Kind = "read"
	Write Kind = "write"
	Grow  Kind = "grow" // takes space: files are made, or become longer
	Sync  Kind = "sync"
	Name  Kind = "name" // names and attributes change
)

// Rule is what happens to calls of some kinds. The first rule that is about a call counts.
type Rule struct {
	Kinds   []Kind `json:"kinds"`    // none: all
	Skip    int    `json:"skip"`     // calls that pass before the first
	Times   int    `json:"times"`    // calls that it is about; 0: all
	DelayMS int    `json:"delay_ms"` // they wait for so long
	Hang    bool   `json:"hang"`     // they wait until there are other rules
	Error   string `json:"error"`    // they fail: EIO or ENOSPC
	Short   bool   `json:"short"`    // writes write half

	skipped, fired int
}

var errnos = map[string]syscall.Errno{"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC}

func (r *Rule) about(kinds []Kind) bool {
	return len(r.Kinds) == 0 || slices.ContainsFunc(kinds, func(k Kind) bool { return slices.Contains(r.Kinds, k) })
}

// Calls counts calls since the beginning.
type Calls struct {
	Syncs   int    `json:"syncs"`
	Delayed int    `json:"delayed"`
	Held    int    `json:"held"` // by a rule, or by Freeze
	Failed  int    `json:"failed"`
	Wrote   string `json:"wrote,omitempty"` // name of the file that the last write that failed was to
	Short   int    `json:"short"`
	Waiting int    `json:"waiting"` // just now, of those that were held
}

// Gate is where each call comes by before it does anything.
type Gate struct {
	gmu    sync.Mutex // guards the fields below; never taken before another lock
	change *sync.Cond // of the next three
	frozen bool
	closed bool // no power
	rules  []*Rule
	era    int // of the rules
	calls  Calls
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

func (g *Gate) open() {
	g.gmu.Lock()
	defer g.gmu.Unlock()
	g.closed, g.frozen = false, false
}

// full reports whether a rule says that there is no space.
func (g *Gate) full() bool {
	g.gmu.Lock()
	defer g.gmu.Unlock()
	return slices.ContainsFunc(g.rules, func(r *Rule) bool { return r.Error == "ENOSPC" && r.about([]Kind{Grow}) })
}

// pass returns when a call may be made, or why it fails.
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

// hold waits for a change.
func (g *Gate) hold(held bool) bool {
	if !held {
		g.calls.Held++
		g.calls.Waiting++
	}
	g.change.Wait()
	return true
}

func (g *Gate) failed(held bool, errno syscall.Errno) syscall.Errno {
	if held {
		g.calls.Waiting--
	}
	g.calls.Failed++
	return errno
}

// judge finds the rule for a call, and counts it.
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
