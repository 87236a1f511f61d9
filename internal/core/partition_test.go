package core

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestATaskIsPlacedByTagThenUniqueKeyThenID(t *testing.T) {
	op := TaskCreate{ID: NewTaskID(1, 0, [9]byte{7: 3}), Unique: Unique{Key: "u"}, Tag: "t"}
	if got, want := op.Place(1000), PlaceText([]byte("t"), 1000); got != want {
		t.Errorf("with a tag: partition %d, want %d", got, want)
	}
	op.Tag = ""
	if got, want := op.Place(1000), PlaceText([]byte("u"), 1000); got != want {
		t.Errorf("with a unique key: partition %d, want %d", got, want)
	}
	op.Unique = Unique{}
	if got := op.Place(1000); got != 3 {
		t.Errorf("with an id alone: partition %d, want 3", got)
	}
}

func TestAPlacedIDSaysItsPartitionTwice(t *testing.T) {
	for _, partitions := range []int{1, 2, 3, 7, 4096} {
		for _, n := range []uint64{0, 1, 4095, 1 << 40, math.MaxUint64 - 1, math.MaxUint64} {
			for _, p := range []uint16{0, uint16(partitions - 1)} {
				var random [9]byte
				binary.BigEndian.PutUint64(random[:8], n)
				random[8] = 0x5a
				id := PlacedID(1_700_000_000_000, p, partitions, random)
				if id.Partition() != p || PlaceID(id, partitions) != p || id.Millis() != 1_700_000_000_000 {
					t.Errorf("partition %d of %d with %x: bits say %d, placed in %d", p, partitions, n, id.Partition(), PlaceID(id, partitions))
				}
				if other := id.WithPartition(77); other.Partition() != 77 || other.WithPartition(p) != id {
					t.Errorf("%s with other bits is %s", id, other)
				}
			}
		}
	}
}
