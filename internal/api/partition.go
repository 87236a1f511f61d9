package api

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// This file says which partition of a namespace a thing belongs to, and refuses what belongs to another one than the
// commit or stream that it comes in. Where a namespace has one partition, everything belongs to that, whatever ids say.

// What a part of a commit can say instead of a partition.
const (
	anywhere = -1 // nothing: it goes where the others go
	nowhere  = -2 // a partition that the namespace does not have: the task cannot exist
	torn     = -3 // two partitions
)

// several reports whether the namespace has partitions to choose from.
func (t *Translator) several() bool { return t.parts > 1 }

// in is a partition of the namespace.
func (t *Translator) in(index int) core.Partition {
	p := t.part
	p.Index = uint16(index)
	return p
}

// partOf returns the partition of a task that exists. It reports false if the id names a partition that the namespace
// does not have: then the task does not exist.
// An id carries the partition in which the task was made.
func (t *Translator) partOf(id core.TaskID) (core.Partition, bool) {
	if !t.several() {
		return t.part, true
	}
	place := t.placeOfID(id)
	return t.in(max(place, 0)), place >= 0
}

// placeOfID is the partition that an id names, or nowhere.
func (t *Translator) placeOfID(id core.TaskID) int {
	if place := int(id.Partition()); place < t.parts {
		return place
	}
	return nowhere
}

// partOfKey returns the partition of a key.
func (t *Translator) partOfKey(key []byte) core.Partition {
	if !t.several() {
		return t.part
	}
	return t.in(int(core.PlaceKey(key, t.parts)))
}

// placeOf returns the partition that an op says it belongs to, or anywhere, nowhere or torn.
// Ops that are of keys, tasks, batches, repositories or points say it by what they name.
func (t *Translator) placeOf(op core.Op) int {
	if create, ok := op.(*core.TaskCreate); ok {
		return t.placeOfCreate(create)
	}
	if place, one := core.PlaceOf(op, t.parts); one {
		return int(place)
	}
	if id, ok := core.BatchOf(op); ok {
		if !id.IsZero() {
			return t.placeOfID(id)
		}
		if open, ok := op.(*core.BatchOpen); ok && !t.bound && t.pinnedFollowUp(open) {
			return core.PinnedPartition
		}
		return anywhere // it is opened wherever the others are
	}
	if id, ok := core.TaskOf(op); ok {
		return t.placeOfID(id)
	}
	return anywhere
}

// notFoundOf says that what an op names is not there, since the namespace does not have its partition.
func notFoundOf(op core.Op) core.Fact {
	if id, ok := core.BatchOf(op); ok {
		return core.NotFound{Kind: "batch", ID: id.String()}
	}
	id, _ := core.TaskOf(op)
	return core.NotFound{Kind: "task", ID: id.String()}
}

// placeOfCreate is the partition of a task that is to be made, or anywhere. torn: its id names another
// one than its tag, key or batch does. A tag, a batch or an id that places a task of a pinned queue elsewhere is left to Apply, which
// refuses it.
func (t *Translator) placeOfCreate(op *core.TaskCreate) int {
	place := t.placeUnpinned(op)
	switch {
	// In a stream, Apply judges what says this partition, or none.
	case t.bound && (t.part.Index != core.PinnedPartition || place == core.PinnedPartition || place == anywhere):
	case op.Tag != "" || !op.Batch.IsZero() || !t.pinned(op.Queue):
	case op.ID.IsZero() || op.ID.Partition() == core.PinnedPartition:
		return core.PinnedPartition
	}
	return place
}

// pinned reports whether a queue is pinned, as far as this node knew when the request first asked.
func (t *Translator) pinned(queue string) bool {
	if !t.several() || t.pins == nil {
		return false
	}
	pinned, asked := t.pinnedNow[queue]
	if !asked {
		pinned = t.pins.Pinned(t.in(core.PinnedPartition), queue)
		if t.pinnedNow == nil {
			t.pinnedNow = make(map[string]bool)
		}
		t.pinnedNow[queue] = pinned
	}
	return pinned
}

// placeUnpinned is placeOfCreate for a task of a queue that is not pinned.
func (t *Translator) placeUnpinned(op *core.TaskCreate) int {
	if op.ID.IsZero() && placedBy(op) == "id" {
		if len(op.After) > 0 {
			return t.placeOfID(op.After[0].Task)
		}
		return anywhere
	}
	place := op.Place(t.parts)
	if !op.ID.IsZero() && op.ID.Partition() != place {
		return torn
	}
	return int(place)
}

// placeTemplate refuses what the server is to make tasks of in the translator's partition, if they belong to another one.
func (t *Translator) placeTemplate(op *core.TaskCreate) core.Fact {
	if !t.several() {
		return nil
	}
	if op.Tag == "" && t.pinned(op.Queue) {
		if t.part.Index != core.PinnedPartition {
			return core.QueuePinned{Queue: op.Queue}
		}
		return nil
	}
	if by, place := placedBy(op), op.Place(t.parts); by != "id" && place != t.part.Index {
		return edge.Belongs(by, int(place))
	}
	return nil
}

// placedBy is the field of a task that says where it belongs.
func placedBy(op *core.TaskCreate) string {
	switch {
	case op.Tag != "":
		return "tag"
	case op.Key != "":
		return "key"
	case op.Unique.Key != "":
		return "unique.key"
	case !op.Batch.IsZero():
		return "batch"
	}
	return "id"
}

// anyTries bounds the look for a partition that this node leads.
const anyTries = 64

// anyPlace draws a partition for a commit that names none: one that this node leads, if there is any, so that the client is not
// redirected.
// It draws from all partitions, so that tasks are spread evenly.
func (t *Translator) anyPlace() int {
	first := int(t.rand.Uint64() % uint64(t.parts))
	if t.leads == nil {
		return first
	}
	for i := range min(t.parts, anyTries) {
		place := (first + i) % t.parts
		if _, here, serves := t.leads.Leader(t.in(place)); here && serves {
			return place
		}
	}
	return first
}

// idAt draws an id that names a partition.
func (t *Translator) idAt(place int) core.TaskID {
	ms, random := t.draw()
	return core.PlacedID(ms, uint16(place), t.parts, random)
}

// placeCreate returns the partition of a task that is made by itself, and gives it an id there if it has none.
// Errors: Misplaced, with the partition where the task belongs.
func (t *Translator) placeCreate(op *core.TaskCreate) (core.Partition, core.Fact) {
	if !t.several() {
		return t.part, nil
	}
	place := t.placeOfCreate(op)
	switch {
	case place == torn:
		f := core.Invalid{Field: "id", Message: "names another partition than " + placedBy(op) + " does"}
		if placedBy(op) == "id" {
			f.Message = "names another partition than its last 64 bits do"
		}
		return t.part, edge.Misplaced{Invalid: f, Place: int(op.Place(t.parts))}
	case place == anywhere && t.bound:
		place = int(t.part.Index)
	case place == anywhere:
		place = t.anyPlace()
	case t.bound && place != int(t.part.Index):
		return t.part, edge.Belongs(placedBy(op), place)
	}
	if field, other, ok := t.awaits(op, place); ok {
		return t.part, edge.Belongs(field, other)
	}
	if op.ID.IsZero() {
		op.ID = t.idAt(place)
	}
	return t.in(place), nil
}

// placeHold returns the partition of a lease that is to be ended or extended.
// Errors: NotFound for an id that no partition can hold; Misplaced in a stream of another one.
func (t *Translator) placeHold(field string, h core.TaskHold) (core.Partition, core.Fact) {
	p, ok := t.partOf(h.Task)
	switch {
	case !ok:
		return p, core.NotFound{Kind: "task", ID: h.Task.String()}
	case t.bound && p != t.part:
		return p, edge.Belongs(field, int(p.Index))
	}
	return p, nil
}

// place puts a commit into the partition of its fence, else of its first part that says one, and refuses parts that
// belong elsewhere. Tasks and batches without an id get one. Of a completion with effects the first op is the edge's own, and says
// the partition; ops are counted after it.
// Errors: WrongPartition lists the ops that belong elsewhere; a condition is refused by its path.
func (t *Translator) place(c *core.Commit, own int) core.Fact {
	if !t.several() {
		return nil
	}
	home, fact := t.home(c)
	if fact != nil {
		return fact
	}
	var strays []int
	var unknown core.Fact
	for i, op := range c.Ops[own:] {
		switch place := t.placeOf(op); {
		case place == anywhere || place == home:
			if _, _, ok := t.awaits(op, home); ok {
				strays = append(strays, i)
			}
		case place != nowhere:
			strays = append(strays, i)
		case unknown == nil:
			unknown = edge.AtOp{Fact: notFoundOf(op), Op: i}
		}
	}
	if len(strays) > 0 {
		return core.WrongPartition{Ops: strays}
	}
	for i, check := range c.Conditions {
		if place := int(core.PlaceKey(check.Key, t.parts)); place != home {
			return edge.Belongs(edge.Item("conditions", i)+".key", place)
		}
	}
	if unknown != nil {
		return unknown
	}
	c.Partition = t.in(home)
	for _, op := range c.Ops {
		switch op := op.(type) {
		case *core.TaskCreate:
			if op.ID.IsZero() {
				op.ID = t.idAt(home)
			}
		case *core.BatchOpen:
			if op.ID.IsZero() {
				op.ID = t.idAt(home)
			}
		}
	}
	return nil
}

// home chooses the partition of a commit. One that says none is put by its request id, so that its repetition is found.
// Every repetition of a commit finds the same partition, but for a commit that says none and has no
// request id.
func (t *Translator) home(c *core.Commit) (int, core.Fact) {
	if c.Fence != nil {
		p, ok := t.partOf(c.Fence.Task)
		switch {
		case !ok:
			return 0, core.LeaseLost{Task: c.Fence.Task, Given: c.Fence.Token}
		case t.bound && p != t.part:
			return 0, edge.Belongs("fence.task", int(p.Index))
		}
		return int(p.Index), nil
	}
	if t.bound {
		return int(t.part.Index), nil
	}
	for _, op := range c.Ops {
		if place := t.placeOf(op); place >= 0 {
			return place, nil
		}
	}
	for _, check := range c.Conditions {
		return int(core.PlaceKey(check.Key, t.parts)), nil
	}
	if c.RequestID != (core.RequestID{}) {
		return int(core.PlaceText(c.RequestID[:], t.parts)), nil
	}
	return t.anyPlace(), nil
}
