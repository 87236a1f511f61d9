package millrace

import (
	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// RefChange is one change of a ref, or a condition on one. MoveRef, SetRef and the others make the usual ones, NewRefChange any.
type RefChange struct{ c *millracev1.RefChange }

// zeroID is the object id that means no object.
const zeroID = "0000000000000000000000000000000000000000"

// RefChangeKind says what a change does.
type RefChangeKind uint8

// The kinds of changes, under the numbers of the contract. Those of a symref are about a symbolic ref, and name a ref where the others
// name an object.
const (
	ChangeCreate       RefChangeKind = iota + 1 // to New; the ref must not exist
	ChangeUpdate                                // to New, whether or not the ref exists; no New deletes it
	ChangeDelete                                // the ref must exist, but for MissingOK
	ChangeVerify                                // nothing: the ref must be at Old, or without Old must not exist
	ChangeSymrefCreate                          // to Target; the ref must not exist
	ChangeSymrefUpdate                          // to Target, whether or not the ref exists
	ChangeSymrefDelete                          // the ref must be symbolic
	ChangeSymrefVerify                          // nothing: the ref must point to OldTarget, or without it must not exist
)

// RefChangeSpec is all that can be said of one change. Object ids are 40 lower-case hexadecimal digits; 40 zeros mean no object.
type RefChangeSpec struct {
	// Kind says which of the other fields count.
	Kind      RefChangeKind
	Name      string  // of the ref, at most 1,024 B
	Old       *string // what the ref must be at; nil: anything; zeros: it must not exist
	New       string  // of ChangeUpdate and ChangeCreate
	Target    string  // name of a ref, of ChangeSymrefCreate and ChangeSymrefUpdate
	OldTarget *string // what a symbolic ref must point to; nil: anything; empty: it must not exist. Not with Old
	NoDeref   bool    // a symbolic ref itself is changed, not what it points to
	MissingOK bool    // a deletion passes where there is no ref
	Message   string  // of the entry in the ref's log, at most 1 KiB
}

// NewRefChange makes a change of all that can be said of one. A server refuses what contradicts itself with ErrInvalid.
func NewRefChange(s RefChangeSpec) RefChange {
	return RefChange{&millracev1.RefChange{
		Kind: millracev1.RefChange_Kind(s.Kind), Name: s.Name, Old: s.Old, New: s.New, Target: s.Target, OldTarget: s.OldTarget,
		NoDeref: s.NoDeref, MissingOk: s.MissingOK, Message: s.Message,
	}}
}

// MoveRef lets a ref point to another object, if it is at old: no old at all means it must not exist. An empty new
// deletes it.
func MoveRef(name, old, new string) RefChange {
	if old == "" {
		old = zeroID
	}
	return RefChange{&millracev1.RefChange{Kind: millracev1.RefChange_UPDATE, Name: name, Old: &old, New: new}}
}

// SetRef lets a ref point to an object, whatever it was at.
func SetRef(name, new string) RefChange {
	return RefChange{&millracev1.RefChange{Kind: millracev1.RefChange_UPDATE, Name: name, New: new}}
}

// CreateRef makes a ref that must not exist.
func CreateRef(name, new string) RefChange {
	return RefChange{&millracev1.RefChange{Kind: millracev1.RefChange_CREATE, Name: name, New: new}}
}

// DeleteRef deletes a ref that is at old; an empty old means any.
func DeleteRef(name, old string) RefChange {
	c := &millracev1.RefChange{Kind: millracev1.RefChange_DELETE, Name: name}
	if old != "" {
		c.Old = &old
	}
	return RefChange{c}
}

// VerifyRef holds when a ref is at old; an empty old means that it does not exist.
func VerifyRef(name, old string) RefChange {
	c := &millracev1.RefChange{Kind: millracev1.RefChange_VERIFY, Name: name}
	if old != "" {
		c.Old = &old
	}
	return RefChange{c}
}

// PointRef makes name a symbolic ref to target, whatever it was.
func PointRef(name, target string) RefChange {
	return RefChange{&millracev1.RefChange{Kind: millracev1.RefChange_SYMREF_UPDATE, Name: name, Target: target}}
}

// with returns a copy of c that a change was made to.
func (c RefChange) with(change func(c *millracev1.RefChange)) RefChange {
	out, _ := proto.Clone(c.c).(*millracev1.RefChange)
	change(out)
	return RefChange{out}
}

// NoDeref changes a symbolic ref itself, not what it points to.
func (c RefChange) NoDeref() RefChange {
	return c.with(func(c *millracev1.RefChange) { c.NoDeref = true })
}

// MissingOK lets the deletion of a ref pass that is not there.
func (c RefChange) MissingOK() RefChange {
	return c.with(func(c *millracev1.RefChange) { c.MissingOk = true })
}

// Message is what the ref's log says of the change.
func (c RefChange) Message(text string) RefChange {
	return c.with(func(c *millracev1.RefChange) { c.Message = text })
}

// wireChanges is changes as a message lists them.
func wireChanges(changes []RefChange) []*millracev1.RefChange {
	out := make([]*millracev1.RefChange, len(changes))
	for i, c := range changes {
		out[i] = c.c
	}
	return out
}
