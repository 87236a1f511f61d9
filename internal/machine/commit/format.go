package commit

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// The format that the cluster writes entries in lies in one row of the system partition of shard 0: two bytes, big-endian.
// Which formats the program at hand knows decides nothing here: a replica whose program is too old applies the entry that
// raises the format as the others do, and then its node stops.

// Format returns the format that entries are to be written in.
func (m *Machine) Format() uint16 { return m.format }

// readFormat reads the row; FormatFirst where none was ever raised.
func readFormat(v core.View) (uint16, error) {
	row, ok, err := v.Get(keys.Format())
	if err != nil || !ok {
		return core.FormatFirst, err
	}
	if len(row) != 2 || binary.BigEndian.Uint16(row) <= core.FormatFirst {
		return 0, errs.Corruptf("format of the cluster %x", row)
	}
	return binary.BigEndian.Uint16(row), nil
}

// raiseFormat raises the format. It never falls.
func (m *Machine) raiseFormat(op *core.FormatRaise) (core.OpResult, core.Fact) {
	switch {
	case op.To < m.format:
		return core.OpResult{}, core.Invalid{Field: "format", Reason: "falls", Message: "the format of a cluster never falls"}
	case op.To == m.format:
		return core.OpResult{Replayed: true, Version: uint64(op.To)}, nil
	case op.Members != m.members.Version:
		return core.OpResult{}, core.WrongMembership{Reason: "changed"}
	}
	m.format = op.To
	m.tx.Set(keys.Format(), binary.BigEndian.AppendUint16(nil, op.To))
	return core.OpResult{Version: uint64(op.To)}, nil
}
