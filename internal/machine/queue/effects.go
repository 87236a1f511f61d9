package queue

import (
	"bytes"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// What a completion did besides ending its task is kept with the task, so that an operator sees it, and goes with it. All of the commit
// is applied or none: the list is made from what the commit asks for.

// effectBytes bounds a record of effects: what does not fit is counted and not listed.
const effectBytes = 16 << 10

// hasEffects reports whether a completion is to keep a list of effects: its commit does more than settle.
func hasEffects(c *core.ApplyContext) bool {
	if c.Commit == nil || c.Format < core.FormatOperate || len(c.Commit.Ops)+len(c.Commit.Conditions) < 2 {
		return false
	}
	if len(c.Commit.Conditions) > 0 {
		return true
	}
	for _, op := range c.Commit.Ops {
		if !op.Kind().Has(core.OpSettles) {
			return true
		}
	}
	return false
}

// saveEffects stores what a completion did.
func (m *Machine) saveEffects(tx core.Txn, c *core.ApplyContext, id core.TaskID, token core.Token) {
	e := core.EffectsOf(c.Commit, c.Rev)
	e.Index, e.At, e.Token = c.Index, c.Stamp, token
	m.key = keys.AppendTaskEffects(m.key[:0], m.p, id)
	tx.Insert(m.mem.own(m.key), appendEffects(nil, &e)) // the result is in m.value now
}

// dropEffects deletes what saveEffects stored.
func (m *Machine) dropEffects(tx core.Txn, id core.TaskID) {
	m.key = keys.AppendTaskEffects(m.key[:0], m.p, id)
	tx.Delete(m.mem.own(m.key))
}

// Effects reads what the completion of a task did besides ending it. Of a task that did nothing else, or has not completed, it is zero.
// ok is false where the task is not there.
func Effects(v core.View, p core.Partition, id core.TaskID) (e core.Effects, ok bool, err error) {
	if _, ok, err = readRecord(v, p, id); err != nil || !ok {
		return e, ok, err
	}
	value, found, err := v.Get(keys.AppendTaskEffects(nil, p, id))
	if err != nil || !found {
		return e, true, err
	}
	e, err = decodeEffects(bytes.Clone(value))
	return e, true, err
}

// appendEffects writes a list of effects, as much of it as has room.
func appendEffects(b []byte, e *core.Effects) []byte {
	start := len(b)
	b = putInt(putUint(append(b, formEffects), e.Index), int64(e.At))
	b = putUint(putUint(b, uint64(e.Token)), e.Rev)
	b = putUint(putUint(b, uint64(e.Count)), uint64(e.Checked))
	for _, list := range [...][]core.Effect{e.Ops, e.Conditions} {
		n := 0
		for size := len(b) - start; n < len(list) && size < effectBytes; n++ {
			one := &list[n]
			size += 16 + len(one.Space) + len(one.Key) + len(one.To)
		}
		b = putUint(b, uint64(n))
		for i := range list[:n] {
			one := &list[i]
			b = append(b, byte(one.Op), boolByte(one.Long))
			b = putString(putString(putString(b, one.Space), string(one.Key)), one.To)
			b = putUint(b, one.Rev)
		}
	}
	return b
}

// decodeEffects reads what appendEffects wrote.
func decodeEffects(b []byte) (e core.Effects, err error) {
	r := read(b, formEffects)
	e.Index, e.At = r.uint(), core.ShardTime(r.int())
	e.Token, e.Rev = core.Token(r.uint()), r.uint()
	e.Count, e.Checked = int(r.u32()), int(r.u32())
	for _, list := range [...]*[]core.Effect{&e.Ops, &e.Conditions} {
		for n := r.uint(); n > 0 && !r.bad; n-- {
			one := core.Effect{Op: core.OpKind(r.byte()), Long: r.byte() != 0, Space: r.string()}
			if key := r.string(); key != "" {
				one.Key = []byte(key)
			}
			one.To, one.Rev = r.string(), r.uint()
			*list = append(*list, one)
		}
	}
	return e, r.done("effects")
}
