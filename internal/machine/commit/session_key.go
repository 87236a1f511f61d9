package commit

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// addSessionKey adds a key that seals sessions of browsers, and keeps the one before it, which still opens them.
func (m *Machine) addSessionKey(op *core.SessionKeyAdd) (core.OpResult, core.Fact, error) {
	if m.clock.format < core.FormatOperate {
		return core.OpResult{}, core.Invalid{Field: "session_key", Reason: "not_supported", Message: fmt.Sprintf("keys of sessions are shared from format %d on", core.FormatOperate)}, nil
	}
	if len(op.Secret) != core.SessionKeyBytes {
		return core.OpResult{}, core.Invalid{Field: "secret", Reason: "bad_length", Message: fmt.Sprintf("must have %d bytes", core.SessionKeyBytes)}, nil
	}
	now, err := SessionKeys(m.tx)
	if err != nil {
		return core.OpResult{}, nil, err
	}
	next := core.SessionKeys{Version: now.Version + 1, Turn: now.Turn}
	made := m.clock.stamp.Add(m.clock.shift)
	switch n := len(now.Keys); {
	case op.End:
		next.Turn++
	case n == 0:
	// The wall clocks may have been set back: then it is not known how old the last key is.
	case made >= now.Keys[n-1].Made && made < now.Keys[n-1].Made.Add(core.SessionKeyLasts):
		return core.OpResult{Version: now.Version}, nil, nil
	default:
		next.Keys = now.Keys[n-1:]
	}
	next.Keys = append(next.Keys, core.SessionKey{Secret: op.Secret, Made: made})
	m.tx.Set(keys.SessionKeys(), core.AppendSessionKeys(nil, &next))
	return core.OpResult{Version: next.Version}, nil, nil
}

// SessionKeys reads the keys that seal sessions of browsers.
func SessionKeys(v core.View) (core.SessionKeys, error) {
	row, ok, err := v.Get(keys.SessionKeys())
	if err != nil || !ok {
		return core.SessionKeys{}, err
	}
	k, err := core.DecodeSessionKeys(row)
	if err != nil {
		return k, errs.Corruptf("keys of sessions: %v", err)
	}
	return k, nil
}
