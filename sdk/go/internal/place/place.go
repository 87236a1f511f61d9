// Package place says which of the P partitions of a namespace a task, key, range or repository belongs to, and makes the ids of tasks.
// It is frozen, and the same in every client and server: the vectors of proto/conformance hold the copies together. P up to 1 means
// that there is no choice.
package place

import (
	"math/rand/v2"
	"strconv"
	"strings"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Text returns the partition of a text: its FNV-1a hash of 64 bits, modulo P.
func Text[T string | []byte](text T, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	// The constants are those of FNV: the offset basis and the prime of 64 bits.
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return int(h % uint64(partitions))
}

// Key returns the partition of a key: by the text within its first pair of braces, if there is any, else by the
// whole key.
func Key[T string | []byte](key T, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	text := string(key)
	// Braces with nothing between them, or that are not closed, are part of the key as any other text.
	if _, rest, ok := strings.Cut(text, "{"); ok {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			text = tag
		}
	}
	return Text(text, partitions)
}

// Pinned is the partition of all tasks of a queue that is bounded or ordered as a whole.
const Pinned = 0

// Space is what places the tasks of a namespace.
type Space struct {
	// Partitions is how many there are; up to 1: there is no choice.
	Partitions int
	// Pinned reports whether a queue is known to be pinned; nil: none is.
	Pinned func(queue string) bool
}

// pins reports whether a task belongs to Pinned, by its queue. A tag or a batch that says otherwise is left to the server.
func (s Space) pins(spec *millracev1.TaskSpec) bool {
	return spec.GetTag() == "" && spec.GetBatch() == "" && s.Pins(spec.GetQueue())
}

// Pins reports whether a queue is known to be pinned.
func (s Space) Pins(queue string) bool {
	return s.Partitions > 1 && s.Pinned != nil && s.Pinned(queue)
}

// pin is Task for a task that belongs to Pinned: its id names that, and its random bits count for nothing.
func (s Space) pin(spec *millracev1.TaskSpec) (place int, err *fault.Fault) {
	if spec.Id == "" {
		spec.Id = Fresh().Placed(Pinned, s.Partitions).String()
		return Pinned, nil
	}
	if id, ok := Parse(spec.Id); ok && id.Partition() != Pinned {
		return Pinned, &fault.Fault{
			Code: wire.WrongPartition, Field: "id", Op: fault.OpNone,
			Message: "names partition " + strconv.Itoa(id.Partition()) + ", and the task's queue partition " + strconv.Itoa(Pinned),
		}
	}
	return Pinned, nil
}

// Task returns the partition of a task: by its tag, else its key, else its unique key, else its batch, else its id. It gives the task an id
// when it has none, and fills in the partition bits of one that leaves them open. What says no place goes to home, or
// below 0 to a random one. A pinned queue says it before all of these but a tag and a batch.
func (s Space) Task(spec *millracev1.TaskSpec, home int) (place int, err *fault.Fault) {
	if s.pins(spec) {
		return s.pin(spec)
	}
	partitions := s.Partitions
	if partitions <= 1 {
		if spec.Id == "" {
			spec.Id = NewID()
		}
		return 0, nil
	}
	// What says the place is named in the refusal below.
	by, text := "tag", spec.Tag
	if text == "" {
		by, text = "key", spec.Key
	}
	if text == "" {
		by, text = "unique.key", spec.Unique.GetKey()
	}
	if text != "" {
		home = Text(text, partitions)
	} else if spec.Batch != "" {
		by, home = "batch", max(Of(spec.Batch, partitions), 0) // the server refuses one that names none
	}
	// Without an id the task gets one that names the place twice, in its partition bits and in its random ones.
	if spec.Id == "" {
		if after := firstAfter(spec); after != "" && text == "" && spec.Batch == "" {
			home = Of(after, partitions) // those that a task waits for are of its partition
		}
		if home < 0 {
			home = rand.IntN(partitions)
		}
		spec.Id = Fresh().Placed(home, partitions).String()
		return home, nil
	}
	id, ok := Parse(spec.Id)
	if !ok {
		return max(home, 0), nil // the server says what is wrong
	}
	// The random bits of an id place a task that nothing else does, so that an id that was made anywhere has one place.
	if text == "" && spec.Batch == "" {
		by, home = "id", id.Home(partitions)
	}
	// Partition 0 in an id means that it is open. An id that was placed in partition 0 has the bits 0 too, and stays as it is.
	switch id.Partition() {
	case home:
	case 0:
		spec.Id = id.with(home).String()
	default:
		if by == "id" {
			by = "random bits"
		}
		return home, &fault.Fault{
			Code: wire.WrongPartition, Field: "id", Op: fault.OpNone,
			Message: "names partition " + strconv.Itoa(id.Partition()) + ", and the task's " + by + " partition " + strconv.Itoa(home),
		}
	}
	return home, nil
}

// Op returns the partition that an op says it belongs to; below 0 when it says none, or is for the server to judge.
func (s Space) Op(op *millracev1.Op) int {
	partitions := s.Partitions
	switch x := op.GetOp().(type) {
	case *millracev1.Op_KvPut:
		return Key(x.KvPut.GetKey(), partitions)
	case *millracev1.Op_KvDelete:
		return Key(x.KvDelete.GetKey(), partitions)
	case *millracev1.Op_KvCheck:
		return Key(x.KvCheck.GetKey(), partitions)
	case *millracev1.Op_KvAdd:
		return Key(x.KvAdd.GetKey(), partitions)
	case *millracev1.Op_KvDeleteRange:
		return Range(x.KvDeleteRange, partitions)
	case *millracev1.Op_VectorUpsert:
		return Key(x.VectorUpsert.GetPoint().GetId(), partitions)
	case *millracev1.Op_VectorDelete:
		return Key(x.VectorDelete.GetId(), partitions)
	case *millracev1.Op_TaskCreate:
		return s.Create(x.TaskCreate)
	case *millracev1.Op_TaskComplete:
		return Of(x.TaskComplete.GetTask().GetId(), partitions)
	case *millracev1.Op_TaskFail:
		return Of(x.TaskFail.GetTask().GetId(), partitions)
	case *millracev1.Op_TaskSnooze:
		return Of(x.TaskSnooze.GetTask().GetId(), partitions)
	case *millracev1.Op_TaskCancel:
		return Of(x.TaskCancel.GetId(), partitions)
	case *millracev1.Op_BatchOpen:
		return Batch(x.BatchOpen, partitions)
	case *millracev1.Op_BatchSeal:
		return Of(x.BatchSeal.GetId(), partitions)
	case *millracev1.Op_BatchCancel:
		return Of(x.BatchCancel.GetId(), partitions)
	case *millracev1.Op_RefTransaction:
		return Repo(x.RefTransaction.GetRepo(), x.RefTransaction.GetTag(), partitions)
	}
	return -1
}

// Batch is where a batch is opened: where its id says, or its tag; below 0 when it says no place.
func Batch(open *millracev1.BatchOpen, partitions int) int {
	switch {
	case open.GetId() != "":
		return Of(open.GetId(), partitions)
	case open.GetTag() != "":
		return Text(open.GetTag(), partitions)
	}
	return -1
}

// Create is where a task belongs; below 0 when it says no place.
func (s Space) Create(spec *millracev1.TaskSpec) int {
	partitions := s.Partitions
	switch {
	case s.pins(spec):
		return Pinned
	// The order is that of Task.
	case spec.GetTag() != "":
		return Text(spec.GetTag(), partitions)
	case spec.GetKey() != "":
		return Text(spec.GetKey(), partitions)
	case spec.GetUnique().GetKey() != "":
		return Text(spec.GetUnique().GetKey(), partitions)
	case spec.GetBatch() != "":
		return Of(spec.GetBatch(), partitions)
	}
	if id, ok := Parse(spec.GetId()); ok {
		return id.Home(partitions)
	}
	if after := firstAfter(spec); after != "" {
		return Of(after, partitions)
	}
	return -1
}

// firstAfter is the id of the first task that one waits for, or empty.
func firstAfter(spec *millracev1.TaskSpec) string {
	if len(spec.GetAfter()) == 0 {
		return ""
	}
	return spec.GetAfter()[0].GetId()
}

// All returns the one partition of a commit: home, or where its first part says when home is below 0. It refuses
// one with parts of another.
func (s Space) All(conds []*millracev1.KVCheck, ops []*millracev1.Op, home int) (place int, err *fault.Fault) {
	partitions := s.Partitions
	if partitions <= 1 {
		return 0, nil
	}
	// An op that says no place, such as a range without a tag, goes wherever the others do.
	for i := 0; home < 0 && i < len(ops); i++ {
		home = s.Op(ops[i])
	}
	for i := 0; home < 0 && i < len(conds); i++ {
		home = Key(conds[i].Key, partitions)
	}
	// All ops that stray are named, so that one answer is enough to mend the commit.
	var e *fault.Fault
	for i, op := range ops {
		p := s.Op(op)
		switch {
		case p < 0 || p == home:
		case e == nil:
			e = &fault.Fault{
				Code: wire.WrongPartition, Op: i, Details: map[string]string{"ops": strconv.Itoa(i)},
				Message: "outside the commit's partition " + strconv.Itoa(home) + ": " + strayOp(i, p),
			}
		default:
			e.Message += ", " + strayOp(i, p)
			e.Details["ops"] += "," + strconv.Itoa(i)
		}
	}
	if e != nil {
		return home, e
	}
	for i, c := range conds {
		if p := Key(c.Key, partitions); p != home {
			return home, &fault.Fault{
				Code: wire.WrongPartition, Op: fault.OpCondition - i, Field: "conditions[" + strconv.Itoa(i) + "].key",
				Message: "is of partition " + strconv.Itoa(p) + ", and the commit of partition " + strconv.Itoa(home),
			}
		}
	}
	return max(home, 0), nil
}

// strayOp names an op and the partition that it is of, for a message.
func strayOp(i, place int) string {
	return "ops[" + strconv.Itoa(i) + "] of partition " + strconv.Itoa(place)
}

// Range returns the partition of the keys of a range: that of the closed {tag} which all of them share; below 0 when
// they may be of several.
func Range(r *millracev1.KVDeleteRange, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	// What all keys of a range begin with: its prefix, or what its bounds share.
	shared := string(r.GetPrefix())
	if shared == "" {
		from, to := r.GetFrom(), r.GetTo()
		n := 0
		for n < len(from) && n < len(to) && from[n] == to[n] {
			n++
		}
		shared = string(from[:n])
	}
	_, rest, ok := strings.Cut(shared, "{")
	tag, _, closed := strings.Cut(rest, "}")
	// A tag that is not closed within the shared part may go on differently in each key.
	if !ok || !closed || tag == "" {
		return -1
	}
	return Text(tag, partitions)
}

// Repo returns the partition of a repository: by its tag, or else by its name.
func Repo(name, tag string, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	if tag != "" {
		return Text(tag, partitions)
	}
	return Text(name, partitions)
}
