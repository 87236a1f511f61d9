package millrace

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// Placement says which of the P partitions of a namespace a task or key belongs to. It is frozen, and the same in every
// client and server. P up to 1 means that there is no choice.

// placeText returns the partition of a text: its FNV-1a hash of 64 bits, modulo P.
func placeText[T string | []byte](text T, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return int(h % uint64(partitions))
}

// placeKey returns the partition of a key: by the text within its first pair of braces, if there is any, else by the
// whole key.
func placeKey[T string | []byte](key T, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	text := string(key)
	if _, rest, ok := strings.Cut(text, "{"); ok {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			text = tag
		}
	}
	return placeText(text, partitions)
}

// taskID is a task's id as numbers: 48 bits of milliseconds, 12 of partition and 4 random ones, then 64 random ones.
type taskID struct{ hi, lo uint64 }

// parseID reads what String prints; lower case is accepted.
func parseID(s string) (id taskID, ok bool) {
	if len(s) != 26 {
		return id, false
	}
	for i := range len(s) {
		d := crockfordDigit(s[i])
		if d > 31 || i == 0 && d > 7 {
			return taskID{}, false
		}
		id.hi = id.hi<<5 | id.lo>>59
		id.lo = id.lo<<5 | uint64(d)
	}
	return id, true
}

// crockfordDigit is the value of a digit; above 31 for what is none.
func crockfordDigit(c byte) byte {
	if c >= 'a' && c <= 'z' {
		c -= 'a' - 'A'
	}
	return byte(strings.IndexByte(crockford, c)) // -1 is 255
}

// String returns the 26 characters of id.
func (id taskID) String() string {
	var out [26]byte
	hi, lo := id.hi, id.lo
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

// partition returns the partition bits.
func (id taskID) partition() int { return int(id.hi >> 4 & 0x0fff) }

// place is the partition that the id puts a task in when nothing else does.
func (id taskID) place(partitions int) int {
	if partitions <= 1 {
		return 0
	}
	return int(id.lo % uint64(partitions))
}

// with returns id with other partition bits.
func (id taskID) with(partition int) taskID {
	id.hi = id.hi&^(0x0fff<<4) | uint64(partition&0x0fff)<<4
	return id
}

// placed returns id with partition bits and random bits that both name a partition of P. Of the random ones all but the
// remainder of their division by P is kept.
func (id taskID) placed(partition, partitions int) taskID {
	if p := uint64(max(partitions, 1)); p > 1 {
		id.lo -= id.lo % p
		if id.lo > math.MaxUint64-p { // the last stretch is shorter than P
			id.lo -= p
		}
		id.lo += uint64(partition)
	}
	return id.with(partition)
}

// freshID makes an id whose partition bits are open. The random source is the runtime's, seeded by the system.
func freshID() taskID {
	return taskID{hi: uint64(time.Now().UnixMilli())<<16 | rand.Uint64()&0x0f, lo: rand.Uint64()}
}

// partitionOf is the partition that an id names; below 0 for a text that is not an id of this namespace, which the
// server judges.
func partitionOf(id string, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	if n, ok := parseID(id); ok && n.partition() < partitions {
		return n.partition()
	}
	return -1
}

// placeTask returns the partition of a task: by its tag, else its unique key, else its id. It gives the task an id there
// when it has none, and fills in the partition bits of one that leaves them open. What says no place goes to home, or
// below 0 to a random one.
func placeTask(spec *millracev1.TaskSpec, partitions, home int) (place int, err *Error) {
	if partitions <= 1 {
		if spec.Id == "" {
			spec.Id = newTaskID()
		}
		return 0, nil
	}
	by, text := "tag", spec.Tag
	if text == "" {
		by, text = "unique.key", spec.Unique.GetKey()
	}
	if text != "" {
		home = placeText(text, partitions)
	}
	if spec.Id == "" {
		if home < 0 {
			home = rand.IntN(partitions)
		}
		spec.Id = freshID().placed(home, partitions).String()
		return home, nil
	}
	id, ok := parseID(spec.Id)
	if !ok {
		return max(home, 0), nil // the server says what is wrong
	}
	if text == "" {
		by, home = "id", id.place(partitions)
	}
	switch id.partition() {
	case home:
	case 0:
		spec.Id = id.with(home).String()
	default:
		if by == "id" {
			by = "random bits"
		}
		return home, &Error{
			Code: CodeWrongPartition, Field: "id", Op: OpNone, Outcome: Refused,
			Message: "names partition " + strconv.Itoa(id.partition()) + ", and the task's " + by + " partition " + strconv.Itoa(home),
		}
	}
	return home, nil
}

// placeOp returns the partition that an op says it belongs to; below 0 when it says none, or is for the server to judge.
func placeOp(op *millracev1.Op, partitions int) int {
	switch x := op.GetOp().(type) {
	case *millracev1.Op_KvPut:
		return placeKey(x.KvPut.GetKey(), partitions)
	case *millracev1.Op_KvDelete:
		return placeKey(x.KvDelete.GetKey(), partitions)
	case *millracev1.Op_KvCheck:
		return placeKey(x.KvCheck.GetKey(), partitions)
	case *millracev1.Op_KvAdd:
		return placeKey(x.KvAdd.GetKey(), partitions)
	case *millracev1.Op_KvDeleteRange:
		return placeRange(x.KvDeleteRange, partitions)
	case *millracev1.Op_VectorUpsert:
		return placeKey(x.VectorUpsert.GetPoint().GetId(), partitions)
	case *millracev1.Op_VectorDelete:
		return placeKey(x.VectorDelete.GetId(), partitions)
	case *millracev1.Op_TaskCreate:
		return placeCreate(x.TaskCreate, partitions)
	case *millracev1.Op_TaskComplete:
		return partitionOf(x.TaskComplete.GetTask().GetId(), partitions)
	case *millracev1.Op_TaskFail:
		return partitionOf(x.TaskFail.GetTask().GetId(), partitions)
	case *millracev1.Op_TaskSnooze:
		return partitionOf(x.TaskSnooze.GetTask().GetId(), partitions)
	case *millracev1.Op_RefTransaction:
		return placeRepo(x.RefTransaction.GetRepo(), x.RefTransaction.GetTag(), partitions)
	}
	return -1
}

// placeCreate is where a task belongs; below 0 when it says no place.
func placeCreate(spec *millracev1.TaskSpec, partitions int) int {
	switch {
	case spec.GetTag() != "":
		return placeText(spec.GetTag(), partitions)
	case spec.GetUnique().GetKey() != "":
		return placeText(spec.GetUnique().GetKey(), partitions)
	}
	if id, ok := parseID(spec.GetId()); ok {
		return id.place(partitions)
	}
	return -1
}

// placeAll returns the one partition of a commit: home, or where its first part says when home is below 0. It refuses
// one with parts of another.
func placeAll(conds []*millracev1.KVCheck, ops []*millracev1.Op, partitions, home int) (place int, err *Error) {
	if partitions <= 1 {
		return 0, nil
	}
	for i := 0; home < 0 && i < len(ops); i++ {
		home = placeOp(ops[i], partitions)
	}
	for i := 0; home < 0 && i < len(conds); i++ {
		home = placeKey(conds[i].Key, partitions)
	}
	var e *Error
	for i, op := range ops {
		p := placeOp(op, partitions)
		switch {
		case p < 0 || p == home:
		case e == nil:
			e = &Error{
				Code: CodeWrongPartition, Op: i, Outcome: Refused, Details: map[string]string{"ops": strconv.Itoa(i)},
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
		if p := placeKey(c.Key, partitions); p != home {
			return home, &Error{
				Code: CodeWrongPartition, Op: OpCondition - i, Outcome: Refused, Field: "conditions[" + strconv.Itoa(i) + "].key",
				Message: "is of partition " + strconv.Itoa(p) + ", and the commit of partition " + strconv.Itoa(home),
			}
		}
	}
	return max(home, 0), nil
}

func strayOp(i, place int) string {
	return "ops[" + strconv.Itoa(i) + "] of partition " + strconv.Itoa(place)
}
