package commit_test

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// since prints a stamp as what passed since the epoch.
func since(t core.ShardTime) string { return core.Millis(t - epoch).Duration().String() }

func (w *world) printResult(r *core.Result) string {
	var b strings.Builder
	switch {
	case r.Refusal != nil:
		fmt.Fprintf(&b, "refused %s: %T %v", place(r.Refusal.Op), r.Refusal.Fact, names(r.Refusal.Fact))
		if r.Replayed {
			b.WriteString(" (replayed)")
		}
		if r.FailedInstead {
			b.WriteString(" (failed instead)")
		}
		return strings.ReplaceAll(b.String(), "core.", "") + "\n"
	case r.Replayed:
		b.WriteString("replayed")
		if r.Index != 0 {
			fmt.Fprintf(&b, " index=%d", r.Index)
		}
	default:
		b.WriteString("ok")
	}
	b.WriteString("\n")
	for _, o := range r.Ops {
		if text := printOp(&o); text != "" {
			b.WriteString("  " + text + "\n")
		}
	}
	return b.String()
}

func place(op int) string {
	switch {
	case op == core.CommitOp:
		return "commit"
	case op == core.FenceOp:
		return "fence"
	case op <= core.ConditionOp:
		return fmt.Sprintf("conditions[%d]", core.ConditionOp-op)
	}
	return fmt.Sprintf("ops[%d]", op)
}

// names prints a fact with the names that scripts use for tasks.
func names(f core.Fact) string {
	switch f := f.(type) {
	case core.LeaseLost:
		return fmt.Sprintf("%s token=%d", taskName(f.Task), f.Given)
	case core.WrongState:
		return fmt.Sprintf("%s is %s", taskName(f.Task), f.State)
	case core.NotFound:
		if id, err := core.ParseTaskID(f.ID); err == nil {
			return f.Kind + " " + taskName(id)
		}
	case core.AlreadyExists:
		if id, err := core.ParseTaskID(f.ID); err == nil {
			return f.Kind + " " + taskName(id)
		}
	case core.RevMismatch:
		return fmt.Sprintf("%s/%s rev=%d value=%q", f.Keyspace, f.Key, f.Rev, f.Value)
	}
	return f.Error()
}

func printOp(o *core.OpResult) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if o.Replayed {
		add("replayed")
	}
	if !o.Task.IsZero() {
		add("%s", taskName(o.Task))
	}
	if o.State != 0 {
		add("%s", o.State)
	}
	if o.Rev != 0 {
		add("rev=%d", o.Rev)
	}
	if o.Prev != nil {
		add("prev=%q", o.Prev)
	}
	if o.Kind == core.OpKVDelete || o.Kind == core.OpNamespaceRemove {
		add("existed=%v", o.Existed)
	}
	if o.Version != 0 {
		add("version=%d", o.Version)
	}
	for _, a := range o.Assigned {
		add("%s token=%d attempt=%d until=%s", taskName(a.Task), a.Token, a.Attempt, since(a.LeaseUntil))
	}
	for _, r := range o.Renewed {
		if r.Lost {
			add("lost")
		} else {
			add("until=%s", since(r.Until))
		}
	}
	if o.Kind == core.OpGrant && len(o.Assigned) == 0 {
		add("nothing")
	}
	if o.More {
		add("more")
	}
	if o.Tenant != 0 {
		add("tenant=%d namespace=%d", o.Tenant, o.Namespace)
	}
	return strings.Join(out, " ")
}
