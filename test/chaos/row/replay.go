package row

import (
	"fmt"
	"path/filepath"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/check/checktest"
)

// archiveFlags makes a server keep its log: each segment is copied before it is reused.
func (e Env) archiveFlags() []string { return []string{"--log-archive-dir", e.archive()} }

// archive is where a server copies its log to.
func (e Env) archive() string { return filepath.Join(e.Dir, "archive") }

// auditLog replays the whole log of a server that was stopped, from archive and data directory: the model must allow
// each answer, each acknowledged call stands in the entry that it was acknowledged with, the store holds what the log
// leads to, tasks and the keys that their completion put stand at one index, and no tenant's answers and rows would be
// others without its neighbours.
func auditLog(archive, data string, o *Outcome, calls []check.Call, effects []string) error {
	log, err := checktest.ReadLog(0, archive, filepath.Join(data, "wal"))
	if err != nil {
		return err
	}
	_, err = auditEntries(log, data, o, calls, effects)
	return err
}

// auditEntries is auditLog for a log that was read. It returns the replay, or nil when the log has none.
func auditEntries(log []checktest.LogEntry, data string, o *Outcome, calls []check.Call, effects []string) (*checktest.Replay, error) {
	r, err := checktest.ReplayCalls(log, calls)
	if err != nil {
		o.fail(fmt.Errorf("the log does not replay: %w", err))
		return nil, nil
	}
	o.Figures["entries"] += float64(len(log))
	o.judge(r.Report)
	if !r.Report.OK() {
		return r, nil // what follows would be judged on a state that is known to be wrong
	}
	stored, err := r.AuditStore(data)
	if err != nil {
		return nil, err
	}
	o.judge(stored)
	if len(effects) > 0 {
		o.judge(r.Together("done", effects))
	}
	if tenants := r.Namespaces(); len(tenants) > 1 {
		for _, p := range tenants {
			alone, err := checktest.Alone(log, p)
			if err != nil {
				return nil, err
			}
			o.judge(alone)
		}
	}
	return r, nil
}
