package place

import (
	"math"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

func TestAPlacedIDSaysItsPartitionTwice(t *testing.T) {
	for _, partitions := range []int{1, 2, 3, 7, 4096} {
		for _, n := range []uint64{0, 1, 4095, 1 << 40, math.MaxUint64 - 1, math.MaxUint64} {
			for _, p := range []int{0, partitions - 1} {
				id := ID{hi: 1_700_000_000_000<<16 | 0x0a, lo: n}.Placed(p, partitions)
				if id.Partition() != p || id.Home(partitions) != p || id.hi>>16 != 1_700_000_000_000 || id.hi&15 != 0x0a {
					t.Errorf("partition %d of %d with %x: bits say %d, placed in %d", p, partitions, n, id.Partition(), id.Home(partitions))
				}
				if read, ok := Parse(id.String()); !ok || read != id {
					t.Errorf("%s is read as %s, %v", id, read, ok)
				}
			}
		}
	}
}

func TestWhatIsNoIDIsNotRead(t *testing.T) {
	for _, s := range []string{"", "0", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "0000000000000000000000000I", "0000000000000000000000000é"} {
		if id, ok := Parse(s); ok {
			t.Errorf("%q is read as %s", s, id)
		}
	}
	if id, ok := Parse("7zzzzzzzzzzzzzzzzzzzzzzzzz"); !ok || id.lo != math.MaxUint64 || id.hi != math.MaxUint64 {
		t.Errorf("lower case is read as %s, %v", id, ok)
	}
}

func TestATaskIsPlacedByTagThenUniqueKeyThenID(t *testing.T) {
	const p = 1000
	spec := &pb.TaskSpec{Tag: "t", Unique: &pb.Unique{Key: "u"}}
	for _, want := range []int{Text("t", p), Text("u", p), 7} {
		spec.Id = ""
		got, err := (Space{Partitions: p}).Task(spec, 7)
		id, _ := Parse(spec.Id)
		if err != nil || got != want || id.Partition() != want {
			t.Errorf("got partition %d, id of %d, %v; want %d", got, id.Partition(), err, want)
		}
		if spec.Tag == "" {
			spec.Unique = nil
		}
		spec.Tag = ""
	}
}

func TestAnIDThatLeavesItsPartitionOpenIsFilledIn(t *testing.T) {
	const p = 1000
	spec := &pb.TaskSpec{Id: ID{hi: 5 << 16, lo: 3042}.String()}
	if got, err := (Space{Partitions: p}).Task(spec, -1); err != nil || got != 42 {
		t.Fatalf("got partition %d, %v, want 42", got, err)
	}
	if id, _ := Parse(spec.Id); id != (ID{hi: 5<<16 | 42<<4, lo: 3042}) {
		t.Errorf("got id %+v, want the same one of partition 42", id)
	}
	before := spec.Id
	if got, err := (Space{Partitions: p}).Task(spec, -1); err != nil || got != 42 || spec.Id != before {
		t.Errorf("placed again: partition %d of %s, %v", got, spec.Id, err)
	}
	spec.Tag = "elsewhere"
	if _, err := (Space{Partitions: p}).Task(spec, -1); err == nil || err.Code != wire.WrongPartition || err.Field != "id" {
		t.Errorf("got %v, want WRONG_PARTITION in id", err)
	}
}

func TestAnOpOfABatchIsPlacedByTheIDOfTheBatch(t *testing.T) {
	const p = 1000
	id := Fresh().Placed(42, p).String()
	for want, op := range map[int]*pb.Op{
		42:           {Op: &pb.Op_BatchSeal{BatchSeal: &pb.BatchSeal{Id: id}}},
		Text("t", p): {Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{Tag: "t"}}},
		-1:           {Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{}}},
	} {
		if got := (Space{Partitions: p}).Op(op); got != want {
			t.Errorf("%v is placed in %d, want %d", op, got, want)
		}
	}
	for _, op := range []*pb.Op{
		{Op: &pb.Op_BatchOpen{BatchOpen: &pb.BatchOpen{Id: id}}}, {Op: &pb.Op_BatchCancel{BatchCancel: &pb.BatchCancel{Id: id}}},
	} {
		if got := (Space{Partitions: p}).Op(op); got != 42 {
			t.Errorf("%v is placed in %d, want 42", op, got)
		}
	}
	for range 20 {
		if n := Of(IDIn(-1, p), p); n < 0 || n >= p {
			t.Fatalf("a drawn id is of partition %d", n)
		}
	}
}
