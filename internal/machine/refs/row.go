package refs

import (
	"encoding/binary"
	"errors"

	"github.com/millrace/millrace/internal/core"
)

// row is a ref as it is stored: flags, then the id with its type and the peeled id, or the target
// of a symbolic ref, then three varints. A plain ref takes at most 73 bytes.
type row struct {
	// id is the object; zero in a symbolic ref.
	id core.ObjectID
	// kind is the type of the object; 0 in a symbolic ref.
	kind core.ObjectType
	// peeled is what an annotated tag finally points to; zero for anything else.
	peeled core.ObjectID
	// target is the ref that a symbolic ref points to; empty otherwise.
	target string
	// rev is the repository's revision at the last change of the ref.
	rev uint64
	// first is the number of the first record of its log since it was made, and seq that of the last one.
	first uint64
	//
	seq uint64
}

// The flags of a row. They are stored. A row is symbolic or peeled, never both.
const (
	// The peeled id follows the id and its type.
	rowPeeled = 1 << 0
	// The length of the target and the target stand in the place of the id.
	rowSymbolic = 1 << 1
	// Every bit that has a meaning.
	rowFlags = rowSymbolic<<1 - 1
)

// errRow says that a value is not one that append writes. Callers add which ref it is of.
var errRow = errors.New("not a row of a ref")

// symbolic reports whether the row is of a symbolic ref: it has a target and no id.
func (r *row) symbolic() bool { return r.target != "" }

// append writes a row. seq is stored as its distance from first, which is short.
func (r row) append(dst []byte) []byte {
	if dst == nil {
		dst = make([]byte, 0, 2+len(r.target)+2*len(r.id)+3*5)
	}
	switch {
	case r.symbolic():
		dst = append(dst, rowSymbolic)
		dst = binary.AppendUvarint(dst, uint64(len(r.target)))
		dst = append(dst, r.target...)
	case r.peeled.IsZero():
		dst = append(append(append(dst, 0), r.id[:]...), byte(r.kind))
	default:
		dst = append(append(append(dst, rowPeeled), r.id[:]...), byte(r.kind))
		dst = append(dst, r.peeled[:]...)
	}
	dst = binary.AppendUvarint(dst, r.rev)
	dst = binary.AppendUvarint(dst, r.first)
	return binary.AppendUvarint(dst, r.seq-r.first)
}

// decodeRow reads a row, and refuses what append never writes: unknown flags, a missing id, bytes at the end.
func decodeRow(b []byte) (r row, err error) {
	// Both bits at once would be a symbolic ref with a peeled id.
	if len(b) == 0 || b[0]&^rowFlags != 0 || b[0] == rowFlags {
		return row{}, errRow
	}
	flags := b[0]
	b = b[1:]
	if flags == rowSymbolic {
		n, k := binary.Uvarint(b)
		if k <= 0 || n == 0 || n > uint64(len(b)-k) {
			return row{}, errRow
		}
		r.target = string(b[k : k+int(n)])
		b = b[k+int(n):]
	} else {
		need := len(r.id) + 1 + int(flags&rowPeeled)*len(r.peeled)
		if len(b) < need {
			return row{}, errRow
		}
		copy(r.id[:], b)
		r.kind = core.ObjectType(b[len(r.id)])
		if flags&rowPeeled != 0 {
			copy(r.peeled[:], b[len(r.id)+1:])
		}
		b = b[need:]
	}
	for _, v := range [...]*uint64{&r.rev, &r.first, &r.seq} {
		n, k := binary.Uvarint(b)
		if k <= 0 {
			return row{}, errRow
		}
		*v, b = n, b[k:]
	}
	r.seq += r.first
	// A sum that overflowed is smaller than what it began with.
	if len(b) != 0 || !r.symbolic() && r.id.IsZero() || r.seq < r.first {
		return row{}, errRow
	}
	return r, nil
}

// ref returns what readers see of a row.
func (r *row) ref(name string) core.Ref {
	return core.Ref{Name: name, ID: r.id, Type: r.kind, Peeled: r.peeled, Target: r.target, Rev: r.rev}
}
