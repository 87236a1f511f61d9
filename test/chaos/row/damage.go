package row

import (
	"context"

	"github.com/millrace/millrace/internal/replog/waltest"
)

// DamageTail damages the last batch of a log, which was never synced, at n positions, in every shape: the log opens to
// whole groups that hold all that was written before the damage. It runs in this process, on the log's own code.
func DamageTail(_ context.Context, e Env, n int) (*Outcome, error) {
	return damaged(waltest.Tail(e.Seed, n))
}

// DamageSealed damages a log that was sealed, n times: each is refused with file and offset, and answers nothing. It runs
// in this process, on the log's own code.
func DamageSealed(_ context.Context, e Env, n int) (*Outcome, error) {
	return damaged(waltest.Sealed(e.Seed, n))
}

// damaged makes an outcome of what a test of the log reports.
func damaged(r *waltest.Report, err error) (*Outcome, error) {
	if err != nil {
		return nil, err
	}
	o := newOutcome()
	o.Done, o.Faults, o.Errors = r.Done, r.Kinds, r.Broken
	return o, nil
}
