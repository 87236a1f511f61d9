package commit

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// setNamespace replaces the configuration of the partition's namespace. Its version rises only when something changed.
func (m *Machine) setNamespace(part *partition, op *core.NamespaceSet) (core.OpResult, core.Fact, error) {
	// The version that the caller's condition is compared with; 0: never configured.
	version := part.config.Version
	switch {
	case op.Config.RetainBytes < 0:
		fact := core.Invalid{Field: "config.retain_bytes", Reason: "negative", Message: "a bound is not negative"}
		return core.OpResult{}, fact, nil
	case op.Config.KeyBytes < 0:
		return core.OpResult{}, core.Invalid{Field: "config.key_bytes", Reason: "negative", Message: "a bound is not negative"}, nil
	case op.Config.KeyRate < 0:
		return core.OpResult{}, core.Invalid{Field: "config.key_writes_per_second", Reason: "negative", Message: "a bound is not negative"}, nil
	case op.Config.KeyByteRate < 0:
		return core.OpResult{}, core.Invalid{Field: "config.key_bytes_per_second", Reason: "negative", Message: "a bound is not negative"}, nil
	case op.IfVersion >= 0 && uint64(op.IfVersion) != version:
		return core.OpResult{}, core.RevMismatch{Rev: version, Missing: version == 0}, nil
	}
	next := op.Config
	next.Version = version
	if next != part.config {
		next.Version++
		part.config, m.ctx.Namespace = next, next // for the ops after it in the commit too
		m.tx.Set(keys.NamespaceConfig(part.p), core.AppendNamespaceConfig(nil, &next))
	}
	return core.OpResult{Version: next.Version}, nil, nil
}
